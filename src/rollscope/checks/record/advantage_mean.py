"""Advantages of a group that do not balance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import TWO_ADVANTAGES
from ..rules import ruled
from ..subject import OneGroup


@check(
    "advantage.mean",
    version=2,
    kind="record",
    subject="group",
    means="The advantages of the group do not balance though they should, by the trainer's "
    "settings or as in all other groups: they were made from other rollouts than these.",
    source="ours; GRPO and RLOO take the group's mean off",
    needs=[TWO_ADVANTAGES, ruled("balanced", "that advantages balance")],
)
def mean(
    group: OneGroup,
    *,
    most: Annotated[float, "mean, of the largest advantage; ours"] = 0.01,
) -> Iterator[Spot]:
    if not group.is_settled:
        return
    known = [m.row["advantage"] for m in group.members if m.row["advantage"] is not None]
    found, largest = sum(known) / len(known), max(map(abs, known))
    if abs(found) > most * largest + 1e-6:
        yield Spot(f"the mean of {len(known)} advantages is {found:.4g}, not 0", value=found)
