"""An advantage whose sign its reward cannot give."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import TWO_ADVANTAGES
from ..rules import ruled
from ..subject import OneGroup


@check(
    "advantage.sign",
    version=2,
    kind="record",
    subject="group",
    means="A rollout above its group's mean reward is pushed down, or one below it up.",
    source="ours; holds for every baseline that is the group's mean",
    needs=[TWO_ADVANTAGES, ruled("signed", "which sign advantages have")],
)
def sign(group: OneGroup) -> Iterator[Spot]:
    known = [m for m in group.members if m.reward is not None and m.row["advantage"] is not None]
    rewards = [m.reward for m in known if m.reward is not None]
    mean, spread = sum(rewards) / len(rewards), max(rewards) - min(rewards)
    for member, reward in zip(known, rewards, strict=True):
        advantage = member.row["advantage"]
        if abs(reward - mean) > 1e-3 * spread and (reward - mean) * advantage < 0:
            side = "above" if reward > mean else "below"
            text = f"reward {reward:g} is {side} its group's mean {mean:.4g}"
            yield Spot(f"{text}, but the advantage is {advantage:.4g}", rollout=member.id,
                       value=advantage)  # fmt: skip
