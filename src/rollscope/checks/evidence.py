"""What checks need to know before they can say anything."""

from __future__ import annotations

from collections.abc import Callable

from .check import Evidence
from .subject import OneGroup, OneRollout, Steps


def _text(one: OneRollout) -> bool:
    return any(turn.text for turn in one.turns)


TURNS = Evidence("messages that the policy wrote", lambda one: bool(one.turns))
TEXT = Evidence("text that the policy wrote", _text)
DEEDS = Evidence(
    "text or calls of tools that the policy wrote", lambda one: _text(one) or bool(one.calls)
)
ENDED = Evidence("a rollout that has ended", lambda one: bool(one.messages) and not one.is_open)
REWARD = Evidence("a reward", lambda one: one.rollout.reward is not None)
PARTS = Evidence("parts of the reward", lambda one: bool(one.rollout.rewards))
FATE = Evidence("its fate", lambda one: one.rollout.fate is not None)
REFERENCE = Evidence("a reference that is a short answer", lambda one: one.reference is not None)
CONCLUDED = Evidence("an answer marked as one", lambda one: one.concluded is not None)
PROMPT = Evidence("text before the policy's first message", lambda one: bool(one.prompt))
CALLS = Evidence("calls of tools", lambda one: bool(one.calls))
TOOLS = Evidence("the tools that may be called", lambda one: bool(one.tools))
ANSWERED = Evidence(
    "answers of tools", lambda one: any(call.said is not None for call in one.calls)
)
MODEL_CALLS = Evidence("calls of the model", lambda one: bool(one.model_calls))
TOKENS = Evidence("tokens of the policy's messages", lambda one: bool(one.drawn))
ENDS = Evidence(
    "where tokens end in the text",
    lambda one: any(m.tokens is not None and m.tokens.ends is not None for m in one.messages),
)
BRANCHED = Evidence("more than one turn", lambda one: len(one.turns) > 1)


def stream(*names: str) -> Evidence:
    """A message of the policy must have these streams."""
    return Evidence(
        f"the stream {' and '.join(names)} of tokens that the policy drew",
        lambda one: any(all(d.stream(n) is not None for n in names) for d in one.drawn),
    )


def _siblings(of: Callable[[OneGroup], int]) -> Callable[[OneGroup], bool]:
    return lambda group: of(group) > 1


SIBLINGS = Evidence("a sibling", _siblings(lambda group: len(group.members)))
TWO_REWARDS = Evidence(
    "two siblings with a reward",
    _siblings(lambda group: sum(m.reward is not None for m in group.members)),
)
TWO_ADVANTAGES = Evidence(
    "two siblings with a reward and an advantage",
    _siblings(lambda group: sum(None not in (m.reward, m.row["advantage"]) for m in group.members)),
)


def noted(name: str, least: int = 2) -> Evidence:
    """So many siblings must have this number in their digest."""
    return Evidence(
        f"{least} siblings of which {name} is known",
        lambda group: sum(name in m.digest for m in group.members) >= least,
    )


def over_steps(name: str, least: int = 10) -> Evidence:
    """A number must be known of so many steps."""

    def known(steps: Steps) -> bool:
        return len(steps.series(name)) >= least

    return Evidence(f"{name} of {least} steps", known)
