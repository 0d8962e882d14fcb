"""A reward that nobody gave."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import PARTS, REWARD
from ..subject import OneRollout


@check(
    "reward.unscored",
    kind="record",
    means="No part of the reward is known, and yet the reward is a number: unscored is taken for "
    "zero, and the policy is punished for nothing.",
    source="TRL, all reward functions None; NeMo-RL, `reward_valid_mask`",
    needs=[REWARD, PARTS],
)
def unscored(one: OneRollout) -> Iterator[Spot]:
    rollout = one.rollout
    lost = [name for name, value in rollout.rewards.items() if value is None or value != value]
    if len(lost) == len(rollout.rewards) and rollout.reward == rollout.reward:
        parts = ", ".join(lost)
        yield Spot(f"its reward is {rollout.reward:g}, but no part is known: {parts}")
