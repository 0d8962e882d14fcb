"""What checks need to know before they can say anything."""

from __future__ import annotations

from .check import Evidence
from .subject import OneGroup, OneRollout


def _text(one: OneRollout) -> bool:
    return any(turn.text for turn in one.turns)


TURNS = Evidence("messages that the policy wrote", lambda one: bool(one.turns))
TEXT = Evidence("text that the policy wrote", _text)


def _two_rewards(group: OneGroup) -> bool:
    return sum(member.reward is not None for member in group.members) > 1


TWO_REWARDS = Evidence("two siblings with a reward", _two_rewards)
