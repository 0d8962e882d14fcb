"""One rollout: what is known of it, its messages, tokens and spans, and where it stands."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model import ToolCall
from ...model.known import known
from ...model.passages import Passage
from ...query import groups
from ...query.hits import Hit
from ...query.notes import Note
from .rows import Number, RolloutRow, Unlisted


class Outline(msgspec.Struct, kw_only=True):
    """Every message of a rollout in a few numbers, as columns: the skeleton of the page."""

    parent: list[int | None]
    """The message that each one follows; -1: it begins a conversation of its own."""
    role: list[str]
    name: list[str | None]
    chars: list[int]
    tokens: list[int | None]
    sampled: list[bool | None]
    tools: list[list[str]]
    calls: list[list[str]]
    """The first argument of each call of a tool, or its beginning."""
    thinks: list[bool]
    failed: list[bool]
    """Does a tool's answer begin as one of a call that failed?"""
    preview: list[str]
    reward: list[Number]


@known
class ShownCall(ToolCall, omit_defaults=False):
    """A call of a tool; all its fields are there, also those that are not known."""


class ShownPart(msgspec.Struct, kw_only=True):
    """One part of a message; `end` is the end of its text in the message's text."""

    type: str
    end: int | None = None
    image: str | None = None
    call: ShownCall | None = None
    id: str | None = None
    data: Any = None


class Body(msgspec.Struct, kw_only=True):
    """One message. Of a long text only the beginning is there; `chars` count the whole, and
    `passages` tell what it consists of."""

    n: int
    role: str
    parent: int | None = None
    name: str | None = None
    text: str | None = None
    chars: int = 0
    passages: list[Passage] = []
    parts: list[ShownPart] | None = None
    tool_calls: list[ShownCall] = []
    tool_call_id: str | None = None
    sampled: bool | None = None
    stop_reason: str | None = None
    reward: Number = None
    state: Any = None
    start: float | None = None
    end: float | None = None
    meta: dict[str, Any] = {}
    tokens: int | None = None


class TextWindow(msgspec.Struct, kw_only=True):
    """A stretch of what a message says: it begins at `start`, and the whole has `chars`."""

    n: int
    start: int
    text: str
    chars: int


class Bodies(msgspec.Struct, kw_only=True):
    first: int
    messages: list[Body]


@known
class ShownFinding(msgspec.Struct, kw_only=True):
    """What a check found about the rollout."""

    check: str
    text: str
    message: int | None = None
    start: int | None = None
    """First character of the message's text that it is about; null: the whole message."""
    end: int | None = None
    first_token: int | None = None
    """First token of the message that it is about."""
    end_token: int | None = None


class Detail(Unlisted, kw_only=True):
    """A whole rollout but for its spans, and with a window of its messages at most."""

    row: RolloutRow
    notes: list[Note] = msgspec.field(default_factory=list)
    findings: list[ShownFinding] = msgspec.field(default_factory=list)
    streams: list[str] = msgspec.field(default_factory=list)
    """Names of the token streams that at least one message has."""
    spans: int = 0
    outline: Outline
    answer: str | None = None
    """The final answer: the text of the last message that the policy wrote, from its end."""
    bodies: Bodies | None = None
    """The messages that were asked for with it, so that a page can be drawn at once."""


class TokenBlock(msgspec.Struct, kw_only=True):
    """Tokens of one message: ids, where each ends in the text, and every stream.

    Of the message's `size` tokens they begin with number `start`. `text` is what they add, from
    character `text_start` of the message on. After the last one it is the text that has no tokens;
    `left` characters of that are not told.

    `marks` are the texts of tokens that the message's text leaves out (the chat template's),
    by id.
    """

    n: int
    size: int = 0
    start: int = 0
    text: str = ""
    text_start: int = 0
    left: int = 0
    ids: list[int] | None = None
    ends: list[int] | None = None
    marks: dict[str, str] = {}
    streams: dict[str, list[Number]] = {}


class TokenBlocks(msgspec.Struct, kw_only=True):
    messages: list[TokenBlock]


class Strip(msgspec.Struct, kw_only=True):
    """One stream over all tokens of a rollout, in at most some 2,000 buckets."""

    stream: str
    tokens: int
    missing: int
    """Tokens without a value."""
    per: int
    """Tokens in a bucket."""
    low: list[Number]
    high: list[Number]
    mean: list[Number]
    """Of each bucket; null: no token of it has a value."""
    messages: list[int]
    """Messages that have tokens, in order."""
    starts: list[int]
    """Place of each of these messages' first token."""
    lowest: Number = None
    highest: Number = None
    average: Number = None
    lowest_at: tuple[int, int] | None = None
    """Message, and token in it."""
    highest_at: tuple[int, int] | None = None


class ShownSpan(msgspec.Struct, kw_only=True):
    name: str
    id: str | None = None
    parent: str | None = None
    start: float | None = None
    end: float | None = None
    message: int | None = None
    error_kind: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    inputs: Any = None
    outputs: Any = None
    meta: dict[str, Any] = {}
    version: int | None = None
    """Policy version at work: as the span says, else that of the message it belongs to."""


@known
class ShownTurn(msgspec.Struct, kw_only=True):
    """A message that the policy wrote, as a stretch of time."""

    message: int
    name: str | None = None
    start: float
    end: float
    versions: list[int] = []
    """Policy versions that wrote it, in order: more than one where weights changed meanwhile."""


class Spans(msgspec.Struct, kw_only=True):
    spans: list[ShownSpan]
    turns: list[ShownTurn] = []
    cut: int = 0
    """Spans left out because there are too many for one answer."""


class ShownNeighbours(groups.Neighbours, kw_only=True, frozen=True):
    """Where a rollout stands: its siblings, the groups beside it, its task at other steps."""

    siblings: list[RolloutRow]


class Hits(msgspec.Struct, kw_only=True):
    hits: list[Hit]
