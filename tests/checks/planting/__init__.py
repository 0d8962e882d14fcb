"""Faults planted into real rollouts, to see which of them the checks find.

No check imports this package, and this package imports no check: what a fault looks like is said
twice, by whoever looks for it and by whoever plants it. Each function plants the variants of one
fault. It changes its host in place and says whether the host was fit for it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from rollscope import Message, Rollout
from rollscope.model import ToolCall, conversation


class Plant(NamedTuple):
    """One way in which a fault shows."""

    check: str
    """The check that should find it."""
    how: str
    into: Callable[..., Any]

    def plant(self, host: Any, draw: Random) -> Any:
        """What was planted; nothing, if the host is not fit for it."""
        return self.into(host, self.how, draw)


ROLLOUTS: list[Plant] = []
"""Faults of one rollout. They are planted into a rollout and say whether they were."""
GROUPS: list[Plant] = []
"""Faults of a group. They are planted into its members and give those that are wrong now."""
STEPS: list[Plant] = []
"""Faults of a run. They are planted into its rollouts from a step on, and say whether they were."""


def planted(room: list[Plant], check: str, *hows: str) -> Callable[[Any], Any]:
    """Makes a function the planter of the variants of one fault."""

    def add(into: Callable[..., Any]) -> Callable[..., Any]:
        room.extend(Plant(check, how, into) for how in hows)
        return into

    return add


def wrote(one: Rollout) -> list[int]:
    """Numbers of the messages that the policy wrote."""
    return [n for n, message in enumerate(one.messages) if conversation.by_policy(message)]


def drew(one: Rollout, stream: str = "logprob", least: int = 1) -> list[int]:
    """Numbers of the policy's messages that have so many tokens with this stream."""
    return [
        n
        for n in wrote(one)
        if (tokens := one.messages[n].tokens) is not None
        and tokens.streams.get(stream) is not None
        and len(tokens) >= least
    ]


def text(message: Message) -> str:
    return conversation.text(message)


def say(message: Message, words: str) -> None:
    """The message says this, and nothing is known of its tokens."""
    message.content, message.tokens = words, None


def calls(one: Rollout) -> list[tuple[int, ToolCall]]:
    """The calls of tools that stand beside a text, each with the number of its message."""
    return [(n, call) for n in wrote(one) for call in one.messages[n].tool_calls]


def insert(one: Rollout, at: int, *messages: Message) -> None:
    """Messages before a place. Whatever named a later message as its parent still does."""
    for message in one.messages[at:]:
        if message.parent is not None and message.parent >= at:
            message.parent += len(messages)
    one.messages[at:at] = messages


def all_planted() -> list[Plant]:
    """Every fault that can be planted."""
    from . import behaviour, groups, record, steps  # noqa: F401

    return [*ROLLOUTS, *GROUPS, *STEPS]
