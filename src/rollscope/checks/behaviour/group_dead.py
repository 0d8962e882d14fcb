"""All siblings have the same reward."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import TWO_REWARDS
from ..subject import OneGroup


@check(
    "group.dead",
    kind="behaviour",
    subject="group",
    means="All siblings have the same reward: there is nothing to learn from the group.",
    source="slime, `zero_std`",
    needs=[TWO_REWARDS],
)
def dead(group: OneGroup) -> Iterator[Spot]:
    rewards = {m.reward for m in group.members if m.reward is not None}
    if len(rewards) == 1:
        yield Spot(f"all {len(group.members)} siblings have the reward {rewards.pop():g}")
