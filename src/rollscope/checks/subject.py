"""What checks look at: a rollout, a group, the steps of a run. Each is only read.

Pieces that several checks ask about are worked out once, when the first of them asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ..model import Message, Rollout, Tokens, ToolCall, conversation
from . import answers
from .modelcalls import ModelCall, model_calls
from .tools import offered


class Turn(NamedTuple):
    """A message that the policy wrote."""

    n: int
    message: Message
    text: str
    """All of it, thoughts too. Ranges of characters count in it."""


class Call(NamedTuple):
    """A tool that a message calls."""

    n: int
    """Number of that message."""
    call: ToolCall
    arguments: Any
    """What they say: the value, or that of the JSON in them; None if they are no JSON."""
    result: int | None
    """Number of the message that answers it; None: none does."""
    said: str | None
    """What it answers."""

    @property
    def name(self) -> str:
        return self.call.name or ""


class Drawn(NamedTuple):
    """The tokens of one message that the policy wrote."""

    n: int
    tokens: Tokens

    def stream(self, name: str) -> list[Any] | None:
        """A stream, one value a token; None: there is none."""
        values: list[Any] | None = self.tokens.streams.get(name)
        return values

    def trained_on(self, name: str) -> list[tuple[int, Any]]:
        """The values of a stream at the tokens that its mask leaves in, each with its place."""
        values, mask = self.stream(name) or [], self.stream("mask")
        if mask is None or len(mask) != len(values):
            return list(enumerate(values))
        return [(n, value) for n, value in enumerate(values) if mask[n]]


class OneRollout:
    """A rollout, late facts folded in."""

    def __init__(
        self,
        rollout: Rollout,
        *,
        is_open: bool = False,
        algorithm: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.rollout = rollout
        self.is_open = is_open
        """Is it still going on?"""
        self.algorithm = algorithm
        """What the trainer's settings say; empty: not known."""
        self.messages: Sequence[Message] = rollout.messages

    @cached_property
    def texts(self) -> list[str]:
        """What each message says."""
        return [conversation.text(message) for message in self.messages]

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages that the policy wrote."""
        return [
            Turn(n, message, self.texts[n])
            for n, message in enumerate(self.messages)
            if conversation.by_policy(message)
        ]

    @cached_property
    def calls(self) -> list[Call]:
        """The tools that the policy called, each with its answer."""
        found = [
            (turn.n, call) for turn in self.turns for call in conversation.tool_calls(turn.message)
        ]
        answers = self._answers() if found else {}
        waiting = {n: list(ns) for n, ns in answers.items()}
        return [self._call(n, call, waiting) for n, call in found]

    def _answers(self) -> dict[str | None, list[int]]:
        """Numbers of the messages that answer a call, by the id that they name."""
        found: dict[str | None, list[int]] = {}
        for n, message in enumerate(self.messages):
            if message.role == "tool" or message.tool_call_id is not None:
                found.setdefault(message.tool_call_id, []).append(n)
        return found

    def _call(self, n: int, call: ToolCall, waiting: dict[str | None, list[int]]) -> Call:
        named = waiting.get(call.id) if call.id is not None else None
        # Ids may repeat in a long rollout, and old logs have none: the next answer counts.
        candidates = named if named else waiting.get(None, [])
        result = next((at for at in candidates if at > n), None)
        if result is not None:
            candidates.remove(result)
        said = None if result is None else self.texts[result]
        return Call(n, call, parsed(call.arguments), result, said)

    @cached_property
    def model_calls(self) -> list[ModelCall]:
        """The calls of models that were recorded as spans."""
        return model_calls(self.rollout.spans)

    @cached_property
    def drawn(self) -> list[Drawn]:
        """The policy's messages that have tokens."""
        return [
            Drawn(turn.n, turn.message.tokens)
            for turn in self.turns
            if turn.message.tokens is not None
        ]

    def streams(self, name: str) -> Iterator[tuple[Drawn, list[Any]]]:
        """The policy's messages that have this stream, with it."""
        for drawn in self.drawn:
            values = drawn.stream(name)
            if values is not None:
                yield drawn, values

    @cached_property
    def gaps(self) -> list[tuple[int, int, float]]:
        """Log probability by the trainer less that when sampled, where both are known and the token
        counts: message, token, difference."""
        found = []
        for drawn in self.drawn:
            train, mask = drawn.stream("train_logprob"), drawn.stream("mask")
            drew = drawn.stream("logprob") if train is not None else None
            if train is None or drew is None or len(train) != len(drew):
                continue
            counts = mask if mask is not None and len(mask) == len(drew) else [1] * len(drew)
            found += [
                (drawn.n, i, b - a)
                for i, (a, b, counted) in enumerate(zip(drew, train, counts, strict=True))
                if counted and a is not None and b is not None and isfinite(a) and isfinite(b)
            ]
        return found

    @cached_property
    def tools(self) -> Mapping[str, Mapping[str, Any]]:
        """The tools that may be called, with their schemas; empty: not known."""
        return offered(self.rollout.meta, self.messages)

    @cached_property
    def reference(self) -> str | None:
        """The answer that is right, where it is a short one; normalised."""
        return answers.reference(self.rollout.reference)

    @cached_property
    def concluded(self) -> tuple[int, str, tuple[int, int]] | None:
        """The policy's last answer that is marked as one: message, answer, characters."""
        for turn in reversed(self.turns):
            found = answers.concluded(turn.text)
            if found is not None:
                return turn.n, *found
        return None

    @cached_property
    def said(self) -> str:
        """Everything that the policy wrote, one message after the other."""
        return "\n".join(turn.text for turn in self.turns)

    @cached_property
    def prompt(self) -> str:
        """Everything before the policy's first message."""
        return "\n".join(self.texts[: conversation.prompt_size(self.messages)])


def parsed(arguments: Any) -> Any:
    """What the arguments of a call say; None if they are a text that is no JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Member(NamedTuple):
    """A rollout of a group, as its thin row has it."""

    row: Mapping[str, Any]
    found: frozenset[str]
    """Checks of the rollout alone that found something."""
    unobserved: frozenset[str]
    digest: Mapping[str, float]
    """What `digest` noted when the rollout was looked at."""

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def reward(self) -> float | None:
        return self.row["reward"]  # type: ignore[no-any-return]


class OneGroup(NamedTuple):
    """The rollouts that are compared with each other, without open and superseded ones."""

    members: Sequence[Member]
    usual_size: int | None
    """Of the groups of its run and split: the commonest size. None: there is none."""
    is_settled: bool
    """Will no more members come? A later step has begun, or nobody writes to the run."""
    algorithm: Mapping[str, Any]
    """What the trainer's settings say; empty: not known."""
    about: Mapping[str, float]
    """What holds in its run and split, and in its task: see `habits`."""
    elsewhere: Mapping[float, int]
    """What several groups of its step say at length, each text as a number; and how many do."""

    def share(self, name: str, least: int = 10) -> float | None:
        """In which share of the run's groups something holds; None: there are too few to tell."""
        counted = self.about.get("prompted" if name == "prompts" else "groups", 0.0)
        return self.about.get(name) if counted >= least else None


class Steps(NamedTuple):
    """What is known of each step of a run and split, in order."""

    split: str | None
    numbers: Sequence[int]
    """Of the steps."""
    rows: Sequence[Mapping[str, float]]
    """Numbers by name for each step: see `stepped`. What is not known is not there."""
    algorithm: Mapping[str, Any]
    """What the trainer's settings say; empty: not known."""

    def series(self, name: str) -> list[tuple[int, float]]:
        """One number over the steps, where it is known."""
        return [
            (step, row[name])
            for step, row in zip(self.numbers, self.rows, strict=True)
            if name in row
        ]
