"""Siblings that say the same have different rewards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import TWO_REWARDS, noted
from ..subject import Member, OneGroup


@check(
    "reward.disagrees",
    version=2,
    kind="behaviour",
    subject="group",
    means="Siblings that say the same but for blanks, quotes and capitals, or conclude the same, "
    "are rewarded differently: the grader is random, or looks at something else than the answer.",
    source="ours",
    needs=[TWO_REWARDS, noted("said")],
)
def disagrees(
    group: OneGroup,
    *,
    twins: Annotated[float, "difference between equal texts; ours"] = 0.05,
    answers: Annotated[float, "difference between equal answers; ours"] = 0.5,
) -> Iterator[Spot]:
    told: set[str] = set()
    for name, least, what in (
        ("said", twins, "says the same"),
        ("answer", answers, "concludes the same"),
    ):
        alike: dict[float, list[Member]] = defaultdict(list)
        for member in group.members:
            if name in member.digest and member.reward is not None:
                alike[member.digest[name]].append(member)
        for members in alike.values():
            rewards = sorted(m.reward for m in members if m.reward is not None)
            if rewards[-1] - rewards[0] < least:
                continue
            # Whom the others contradict: those that do not have the commonest reward.
            usual = max(rewards, key=rewards.count)
            for member in members:
                if member.reward != usual and member.id not in told:
                    told.add(member.id)
                    yield Spot(f"it {what} as {len(members) - 1} siblings; its reward is "
                               f"{member.reward:g}, theirs up to {usual:g}", rollout=member.id,
                               value=(member.reward or 0.0) - usual)  # fmt: skip
