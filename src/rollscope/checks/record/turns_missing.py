"""The policy wrote nothing at all."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import ENDED
from ..subject import OneRollout


@check(
    "turns.missing",
    kind="record",
    means="The rollout has ended without a message of the policy: it failed, or was not captured.",
    source="NeMo Gym, `rollout_missing_agent_turns`",
    needs=[ENDED],
)
def missing(one: OneRollout) -> Iterator[Spot]:
    if not one.turns:
        roles = ", ".join(dict.fromkeys(message.role for message in one.messages))
        yield Spot(f"none of its {len(one.messages)} messages is the policy's, only {roles}")
