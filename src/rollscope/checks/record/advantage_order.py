"""A better answer with a lower advantage."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import TWO_ADVANTAGES
from ..rules import ruled
from ..subject import OneGroup


@check(
    "advantage.order",
    version=2,
    kind="record",
    subject="group",
    means="A sibling with a higher reward has a lower advantage: rewards and advantages are joined "
    "in the wrong order, or with the wrong sign.",
    source="ours; GRPO, RLOO and Dr. GRPO all keep the order",
    needs=[TWO_ADVANTAGES, ruled("kept", "that advantages follow rewards")],
)
def order(group: OneGroup) -> Iterator[Spot]:
    known = sorted(
        (member.reward, member.row["advantage"], member.id)
        for member in group.members
        if member.reward is not None and member.row["advantage"] is not None
    )
    highest: tuple[float, float] | None = None
    for reward, advantage, id in known:
        if highest is not None and reward > highest[0] and advantage < highest[1] - _close(known):
            yield Spot(
                f"reward {reward:g} has the advantage {advantage:.4g}, but reward "
                f"{highest[0]:g} has {highest[1]:.4g}",
                rollout=id,
            )  # fmt: skip
        if highest is None or advantage > highest[1]:
            highest = reward, advantage


def _close(known: list[tuple[float, float, str]]) -> float:
    """What rounding may make of equal advantages."""
    return 1e-4 * max(1e-6, *(abs(advantage) for _, advantage, _ in known))
