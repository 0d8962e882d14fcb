"""Siblings are missing, or there are too many."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..subject import OneGroup

_TOLD = {"train": "group_size", "eval": "eval_group_size"}
"""Where the trainer's settings say it, by split."""


def _usual(group: OneGroup) -> int | None:
    """How many siblings groups have; None: nobody knows."""
    told = group.algorithm.get(_TOLD.get(group.members[0].row["split"] or "train", ""))
    return told if group.usual_size is None else group.usual_size


_USUAL = Evidence("a size that groups of its run usually have, or the trainer's settings for it",
                  lambda group: _usual(group) is not None)  # fmt: skip


@check(
    "group.size",
    version=2,
    kind="record",
    subject="group",
    means="The group has another size than the others: siblings were lost or counted twice, and "
    "its advantages are taken over the wrong rollouts.",
    source="ours",
    needs=[_USUAL],
)
def size(group: OneGroup) -> Iterator[Spot]:
    # A retry has the place of what it retries.
    places = {m.id if m.row["index"] is None else m.row["index"] for m in group.members}
    usual, found = _usual(group), len(places)
    if usual is None:
        return
    if found > usual:
        yield Spot(f"{found} siblings, where groups usually have {usual}", value=found)
    elif found < usual and group.is_settled:
        is_numbered = all(member.row["index"] is not None for member in group.members)
        gone = [str(i) for i in range(usual) if i not in places] if is_numbered else []
        listed = f"; missing: {', '.join(gone[:8])}" if gone else ""
        yield Spot(f"{found} of {usual} siblings{listed}", value=found)
