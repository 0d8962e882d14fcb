"""Which rollouts of a step a sink may have: its cap, exact over all workers.

The whole step is at hand here, so counts are exact: the groups with the lowest hashes win, as
`Sample` draws them, each with all its rollouts. Once a rollout of a group was sent, the group stays
chosen. Failed rollouts get no extra room: these systems cost per trace.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from ..model.grouping import Name
from ..model.sample import Sample, draw


class Slot(NamedTuple):
    """What a cap is counted over."""

    launch: str | None
    step: int | None
    split: str | None


class Candidate(NamedTuple):
    """A rollout that may be sent: what the store is asked about it."""

    id: str
    slot: Slot
    drawn: str
    """What a number is drawn for: see `sample.drawn_by`."""
    group: Name
    ended: bool
    """Will it not grow any more, and is it not superseded?"""
    known: bool
    """Is its reward known, or that it will have none?"""
    decided: bool
    """Is its fate known: trained, dropped, ...?"""
    digest: str
    """A digest of the facts that may still change."""


def choose(
    rows: Sequence[Candidate], sample: Sample | None, sent: Container[str]
) -> list[Candidate]:
    """The candidates of one slot that the cap lets through."""
    if sample is None:
        return list(rows)
    groups: dict[Name, list[Candidate]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    begun = [name for name, group in groups.items() if any(row.id in sent for row in group)]
    drawn = sorted(
        (draw(sample.seed, group[0].slot.step, group[0].drawn), repr(name), name)
        for name, group in groups.items()
        if name not in begun
    )
    chosen = [groups[name] for name in begun]
    for number, _, name in drawn:
        if sample.has_room(number, len(chosen), sum(map(len, chosen))):
            chosen.append(groups[name])
    return [row for group in chosen for row in group]
