"""An advantage whose sign its reward cannot give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import TWO_ADVANTAGES, habit
from ..subject import OneGroup


@check(
    "advantage.sign",
    kind="record",
    subject="group",
    means="A rollout above its group's mean reward is pushed down, or one below it up.",
    source="ours; holds for every baseline that is the group's mean",
    needs=[TWO_ADVANTAGES, habit("signed", "the sign of advantages")],
)
def sign(
    group: OneGroup,
    *,
    usual: Annotated[float, "share of groups with the right signs; ours"] = 0.9,
) -> Iterator[Spot]:
    if (group.share("signed") or 0.0) < usual:
        return
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
