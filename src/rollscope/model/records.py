"""What a rollout is.

A rollout is one trajectory: a tree of messages, the spans that made them, and an
outcome. Every record can be built with only what is known. `None` (or an empty
list or dict, for fields that are containers) means "not known", never zero.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import show
from .known import known
from .taken import NO_RECORDS, NOTHING, Records, TextOrRecords
from .tokens import Tokens


class Error(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """Why a rollout or a span failed."""

    kind: str | None = None
    """Whose fault it was: `policy`, `tool`, `environment`, `grader`, `limit` or `infrastructure`;
    None when nobody could tell."""
    type: str | None = None
    """Class name of the exception, or the trainer's own word."""
    text: str | None = None
    """What it said."""


@known
class ToolCall(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One call of a tool that a message asks for."""

    id: str | None = None
    """The id that the tool's answer carries as `tool_call_id`."""
    name: str | None = None
    arguments: Any = None
    """As the model wrote them: a string (not parsed, not re-ordered) or a JSON value."""


@known
class Part(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One piece of a message whose content is not just text."""

    type: str
    """`text`, `reasoning`, `image`, `tool_call`, `tool_result`; any other word is kept."""
    text: str | None = None
    image: str | None = None
    """A URL or data URL."""
    call: ToolCall | None = None
    id: str | None = None
    """For a tool result: the id of the call it answers."""
    data: Any = None
    """Whatever else the part holds, as JSON."""


class Message(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One node of the conversation. It holds only what it adds to its parent."""

    role: str
    """Any text; `system`, `user`, `assistant`, `tool` are known; `unknown` when nobody can tell."""
    content: TextOrRecords[Part] = NOTHING
    parent: int | None = None
    """Number of the message it follows. None: the one before it. -1: none, it begins a
    conversation of its own (a sub-agent, a rewritten context)."""
    name: str | None = None
    """Who speaks: the agent or player, or the tool."""
    tool_calls: Records[ToolCall] = NO_RECORDS
    tool_call_id: str | None = None
    sampled: bool | None = None
    """Did the policy write it? None: not known."""
    tokens: Tokens | None = None
    stop_reason: str | None = None
    reward: float | None = None
    """The reward given for this message alone."""
    state: Any = None
    """The environment's state after it, as JSON."""
    start: float | None = None
    end: float | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class Span(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One timed call inside a rollout."""

    name: str
    id: str | None = None
    parent: str | None = None
    """Id of the span that called this one."""
    inputs: Any = None
    outputs: Any = None
    error: Error | None = None
    start: float | None = None
    end: float | None = None
    message: int | None = None
    """Number of the message that it made, if it made one."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class Rollout(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One trajectory, from prompt to end."""

    id: str | None = None
    """Filled in when logged: a hash of launch and `key` if there is a key, else a new one."""
    key: str | None = None
    """The trainer's own name for it, unique in its launch, so that other processes can
    annotate it."""
    project: str | None = None
    run: str | None = None
    launch: str | None = None
    """One start of the run's processes. A restart from a checkpoint is a new one."""
    step: int | None = None
    """Training step at which it was asked for."""
    trained_step: int | None = None
    """Training step that learned from it (later than `step` in asynchronous training)."""
    split: str | None = None
    """`train`, `eval`, or any name."""
    dataset: str | None = None
    task: str | int | None = None
    """Stable key of the thing to be solved, across steps and runs. Kept as text."""
    group: str | None = None
    """The rollouts of one task at one step that are compared with each other."""
    index: int | None = None
    """Place in its group."""
    attempt: int | None = None
    """Counts retries of the same rollout, from 0."""
    worker: str | None = None

    messages: Records[Message] = NO_RECORDS
    spans: list[Span] = msgspec.field(default_factory=list)

    reward: float | None = None
    rewards: dict[str, float] = msgspec.field(default_factory=dict)
    """Parts of the reward, by name."""
    reward_texts: dict[str, str] = msgspec.field(default_factory=dict)
    """What the judge wrote for a part, by the same name."""
    advantage: float | None = None
    stop_reason: str | None = None
    """In the trainer's own word."""
    truncated: bool | None = None
    fate: str | None = None
    fate_reason: str | None = None
    error: Error | None = None

    time: float | None = None
    """When it was logged (Unix seconds); filled in."""
    start: float | None = None
    end: float | None = None

    sampling: dict[str, Any] = msgspec.field(default_factory=dict)
    """`temperature`, `top_p`, `top_k`, ..., and `logprobs`: `raw`, or `processed` when they
    were taken after truncation or temperature. Without it two engines' numbers cannot be
    compared."""
    policy_version: int | None = None
    reference: Any = None
    """Ground truth, as JSON."""
    environment: str | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)

    def _repr_html_(self) -> str:
        return show.rollout(self)


class Fact(msgspec.Struct, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """Something learned about a rollout after it was written. See `facts` for the names."""

    rollout: str
    name: str
    value: Any = None
    """As JSON. None says nothing and never overrides."""
    stream: Any = None
    """For names `tokens.<stream>`: one number per token of the rollout (or of `message`)."""
    message: int | None = None
    """Number of the message it is about; None: the rollout."""
    author: str | None = None
    time: float | None = None
    n: int | None = None
    """Counts the facts of one writer: decides when two have the same time."""
