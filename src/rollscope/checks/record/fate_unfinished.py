"""Siblings whose end nobody recorded."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..subject import OneGroup

_ENDS = ("trained", "dropped", "masked", "rejected", "failed")

_ENDED = Evidence(
    "a settled group, not of an evaluation, of which a trainer has used or left out a sibling",
    lambda group: (
        group.is_settled
        and group.members[0].row["split"] != "eval"
        and any(m.row["fate"] in _ENDS[:-1] for m in group.members)
    ),
)


@check(
    "fate.unfinished",
    version=2,
    kind="record",
    subject="group",
    means="Siblings were trained on or dropped, but of this rollout nobody said what became of it: "
    "it was lost between sampling and training.",
    source="ours",
    needs=[_ENDED],
)
def unfinished(group: OneGroup) -> Iterator[Spot]:
    ended = [member for member in group.members if member.row["fate"] in _ENDS]
    for member in group.members:
        if member.row["fate"] in ("generated", "scored"):
            yield Spot(
                f"it is only {member.row['fate']!r}, while {len(ended)} of {len(group.members)} "
                "siblings have an end",
                rollout=member.id,
            )  # fmt: skip
