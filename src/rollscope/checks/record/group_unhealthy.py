"""Something is wrong with every sibling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import SIBLINGS
from ..subject import OneGroup

TROUBLE = frozenset(
    ("call.failed", "call.lost", "call.tokens", "reward.grader", "reward.unscored",
     "thought.runaway", "turn.hollow", "turns.missing")
)  # fmt: skip
"""Checks whose findings mean that a rollout did not go as it should have."""


@check(
    "group.unhealthy",
    kind="record",
    subject="group",
    means="All siblings failed in a way that is not the policy's answer: the task, its environment "
    "or its model is broken, and trying again does not help.",
    source="NeMo Gym, `task_consistently_unhealthy` and `task_no_successful_model_calls`",
    needs=[SIBLINGS],
)
def unhealthy(group: OneGroup) -> Iterator[Spot]:
    troubles = [member.found & TROUBLE for member in group.members]
    if all(troubles):
        commonest = Counter(id for found in troubles for id in found).most_common(3)
        told = ", ".join(f"{id} in {count}" for id, count in commonest)
        yield Spot(f"something is wrong with all {len(troubles)} siblings: {told}")
