"""The text form of records: one JSON object per line, made when the trainer calls.

Encoding *is* the snapshot: once the bytes exist, the trainer may change its lists. Token arrays are
the exception: they are copied as bytes, and `Line.encode` turns them into text later, on the
background thread.

A line has one of these shapes (absent keys are None):

    {"rollout": {...Rollout...}}                    a whole rollout
    {"rollout": {...}, "open": true}                one that is still going on
    {"rollout": {...}, "open": false}               the end of one that an earlier line began
    {"more": {"id": ..., "first": 7, "messages": [...], "spans": [...]}}
    {"facts": [{...Fact...}]}
    {"metrics": {"step": 12, "time": ..., "values": {"loss": 0.3}}}

Inside, a message's `content` is always text or absent. A message made of parts carries the
concatenated text of its parts as `content`, and `parts`: the same parts with `end` (the end
of its text, in characters) in the place of each text, so that nothing is written twice and
token `ends` mean the same thing for every message.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from . import chat
from .arrays import Arrays, arrays_json, frozen, is_here, nbytes
from .known import known
from .normalise import finite, normalise, normalise_fact, plain
from .normalise import text as clean
from .records import Error, Fact, Message, Part, Rollout, Span, ToolCall
from .schema import FIELDS, MESSAGES, SPANS, Column
from .staged import Moving
from .tokens import Tokens, detached

_HOLE = b"\x01"  # JSON escapes control characters, so this byte stands nowhere else


class Line:
    """One line of a log, its text done, its arrays still to be put in."""

    __slots__ = ("arrays", "data")

    def __init__(self, data: bytes, arrays: list[Arrays]) -> None:
        self.data = data
        self.arrays = arrays

    @property
    def size(self) -> int:
        """Bytes it holds in memory, about."""
        size = len(self.data)
        for arrays in self.arrays:
            for values in arrays.values():
                size += nbytes(values)
        return size

    def is_here(self) -> bool:
        """Are all of its arrays on the host? `encode` waits for those that are not."""
        return all(is_here(values) for arrays in self.arrays for values in arrays.values())

    def encode(self, problems: list[str] | None = None) -> bytes:
        """The whole line, without the newline. Arrays that are none are left out and named."""
        if not self.arrays:
            return self.data
        out: list[bytes] = []
        start = 0
        for arrays in self.arrays:
            hole = self.data.index(_HOLE, start)
            out += (self.data[start:hole], *arrays_json(arrays, problems))
            start = hole + 1
        out.append(self.data[start:])
        return b"".join(out)


def rollout_line(
    rollout: Rollout,
    *,
    is_open: bool | None = None,
    problems: list[str] | None = None,
    moving: Moving | None = None,
) -> Line:
    """Snapshot a rollout. Fast when it is plain; any odd value takes the slow path.

    `is_open`: None for a whole one, True for the beginning of one, False for its end. `moving`: its
    arrays that are snapshotted already.
    """
    _holes.moving = moving or {}
    plain = rollout if _is_plain(rollout) else _with_plain_numbers(rollout)
    if plain is rollout or (plain is not None and _is_plain(plain)):
        line = _fast(_RolloutLine(plain, is_open))
        if line is not None:
            return line
    p = problems if problems is not None else []
    body: dict[str, Any] = {"rollout": _rollout_dict(normalise_tokens_later(rollout, p))}
    return _slow(body if is_open is None else body | {"open": is_open})


class _RolloutLine(msgspec.Struct, omit_defaults=True, gc=False):
    rollout: Rollout
    open: bool | None = None


def more_line(
    id: str,
    first: int,
    messages: list[Message],
    spans: list[Span],
    problems: list[str] | None = None,
) -> Line:
    """Snapshot what an open rollout has grown by: messages from number `first` on, and spans."""
    shell = Rollout(messages=messages, spans=spans)
    _holes.moving = {}
    if _is_plain(shell, first):
        line = _fast(_MoreLine(_More(id=id, first=first, messages=messages, spans=spans)))
        if line is not None:
            return line
    p = problems if problems is not None else []
    clean = normalise_tokens_later(shell, p, first)
    body = _rollout_dict(clean)
    record: dict[str, Any] = {"id": id, "first": first}
    record |= {k: body[k] for k in ("messages", "spans") if k in body}
    return _slow({"more": record})


def _with_plain_numbers(rollout: Rollout) -> Rollout | None:
    """A copy with Python numbers instead of NumPy's, which trainers often have and which would
    force the slow path. None if that does not help."""
    changes: dict[str, Any] = {}
    for name, is_whole in _NUMBERS.items():
        value = getattr(rollout, name)
        if value is not None and type(value) not in _PYTHONS and hasattr(value, "item"):
            number = value.item()
            if type(number) not in _PYTHONS or (is_whole and type(number) is not int):
                return None
            changes[name] = number
    rewards: dict[str, Any] = rollout.rewards
    if type(rewards) is not dict:
        return None
    if any(type(value) not in _PYTHONS for value in rewards.values()):
        if not all(hasattr(v, "item") or type(v) in _PYTHONS for v in rewards.values()):
            return None
        changes["rewards"] = {k: v if type(v) in _PYTHONS else v.item() for k, v in rewards.items()}
    return msgspec.structs.replace(rollout, **changes) if changes else None


_PYTHONS = frozenset({float, int, bool})
_NUMBERS = {
    column.name: column.type == "BIGINT"
    for column in FIELDS
    if column.type in ("BIGINT", "DOUBLE", "BOOLEAN")
}
"""Fields of a rollout that are one number, and whether it is a whole one."""


class _More(msgspec.Struct, kw_only=True):
    id: str
    first: int
    messages: list[Message]
    spans: list[Span]


class _MoreLine(msgspec.Struct, gc=False):
    more: _More


# What the columns hold as it is, as types: msgspec compares a record with them faster than it
# encodes it. It would write NaN and infinities as null without a word, so they are none of these.
# Text is not looked at, but for the content of a message, which may be made of parts.
_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Scalar = bool | int | _Finite | str | None
_Json: Any = _Scalar
for _ in range(6):  # deeper JSON takes the slow path
    _Json = _Scalar | list[_Json] | dict[str, _Json]
_HELD: dict[str, Any] = {
    "INTEGER": _Whole | None,
    "BIGINT": _Whole | None,
    "DOUBLE": _Finite | None,
    "BOOLEAN": bool | None,
    "MAP(VARCHAR, DOUBLE)": dict[str, _Finite],
    "MAP(VARCHAR, VARCHAR)": dict[str, str],
    "JSON": _Json,
}


def _shape(record: type[msgspec.Struct], table: Iterable[Column], **more: Any) -> Any:
    """The fields of a record that are looked at, each with what its column holds."""
    fields = {c.name: _HELD[c.type] for c in table if c.type in _HELD}
    fields |= {c.name: dict[str, _Json] for c in table if c.is_dict and c.type == "JSON"} | more
    known = [(n, type) for n, type in fields.items() if n in record.__struct_fields__]
    return msgspec.defstruct(f"_Plain{record.__name__}", known, gc=False)


_META = {"meta": dict[str, _Json]}
_PLAIN_CALL: Any = _shape(ToolCall, (), arguments=_Json)
_PLAIN_MESSAGE: Any = _shape(
    Message, MESSAGES, content=str | None, tool_calls=list[_PLAIN_CALL], **_META
)
_PLAIN_SPAN: Any = _shape(Span, SPANS, **_META)
_PLAIN_ROLLOUT = known(
    _shape(Rollout, FIELDS, messages=list[_PLAIN_MESSAGE], spans=list[_PLAIN_SPAN])
)


def _is_plain(rollout: Rollout, first: int = 0) -> bool:
    """Is it made of our records, without parts, and of values that their columns hold?

    `first` is the number of its first message, when earlier ones are written.
    """
    messages = rollout.messages
    if not (
        _MESSAGES_ONLY.issuperset(map(type, messages))
        and _SPANS_ONLY.issuperset(map(type, rollout.spans))
        and _CALLS_ONLY.issuperset(map(type, chain.from_iterable(map(_CALLS, messages))))
        and (rollout.error is None or type(rollout.error) is Error)
    ):
        return False
    try:
        msgspec.convert(rollout, _PLAIN_ROLLOUT, from_attributes=True)
    except Exception:  # not what the columns hold; or an odd object, which raises what it likes
        return False
    return _NO_PARENT.issuperset(map(_PARENT, messages)) or all(
        parent is None or -1 <= parent < n for n, parent in enumerate(map(_PARENT, messages), first)
    )


_MESSAGES_ONLY, _SPANS_ONLY, _CALLS_ONLY = (frozenset({t}) for t in (Message, Span, ToolCall))
_CALLS, _PARENT, _NO_PARENT = attrgetter("tool_calls"), attrgetter("parent"), frozenset({None})


def facts_line(facts: list[Fact], problems: list[str] | None = None) -> Line:
    """Snapshot late facts."""
    p = problems if problems is not None else []
    arrays: list[Arrays] = []
    rows = []
    for fact in facts:
        row = msgspec.to_builtins(normalise_fact(msgspec.structs.replace(fact, stream=None), p))
        if fact.stream is not None:
            arrays.append({"": frozen(fact.stream)})
            row["stream"] = msgspec.Raw(_HOLE)
        rows.append(row)
    return Line(_PLAIN.encode({"facts": rows}), arrays)


def metrics_line(
    step: int | None, values: dict[str, Any], time: float, problems: list[str] | None = None
) -> Line:
    """Snapshot a trainer's numbers of one step. What is not a number is left out and reported."""
    p = problems if problems is not None else []
    numbers: dict[str, float | str] = {}
    for name, value in values.items():
        try:
            number = float(detached(value))
        except (TypeError, ValueError, RuntimeError, OverflowError):
            p.append(f"metrics.{name}: expected a number, found {type(value).__name__}; left out")
            continue
        numbers[plain(str(name), "metrics", p)] = finite(number)
    return Line(_PLAIN.encode({"metrics": {"step": step, "time": time, "values": numbers}}), [])


def normalise_tokens_later(rollout: Rollout, problems: list[str], first: int = 0) -> Rollout:
    """`normalise`, but token arrays stay as they are: the writer's thread turns them to text."""
    messages = [chat.as_message(m) for m in rollout.messages]
    tokens = [m.tokens for m in messages]
    bare = msgspec.structs.replace(
        rollout,
        messages=[
            msgspec.structs.replace(m, tokens=None) if m.tokens is not None else m for m in messages
        ],
    )
    clean = normalise(bare, problems, first)
    for message, kept in zip(clean.messages, tokens, strict=True):
        message.tokens = kept
    return clean


# -- the fast path ---------------------------------------------------------------------


class _Holes(threading.local):
    def __init__(self) -> None:
        self.arrays: list[Arrays] = []
        self.moving: Moving = {}


_holes = _Holes()


def _hole(value: Any) -> Any:
    """Called by msgspec for what it does not know. Only tokens are ours; the rest is slow."""
    if type(value) is Tokens:
        moving = _holes.moving
        arrays = {
            clean(name): moving.get(id(values)) or frozen(values)
            for name, values in value.streams.items()
        }
        if value.ends is not None:
            arrays["ends"] = moving.get(id(value.ends)) or frozen(value.ends)
        if value.ids is not None:
            arrays["ids"] = moving.get(id(value.ids)) or frozen(value.ids)
        _holes.arrays.append(arrays)
        return msgspec.Raw(_HOLE)
    raise NotImplementedError


_ENCODER = msgspec.json.Encoder(enc_hook=_hole)
_PLAIN = msgspec.json.Encoder()


def _fast(whole: _RolloutLine | _MoreLine) -> Line | None:
    """The line as msgspec writes it; None if it cannot."""
    _holes.arrays = []
    try:
        return Line(_ENCODER.encode(whole), _holes.arrays)
    except Exception:  # lone surrogates, foreign types, huge numbers: all slow
        return None


# -- the slow path ---------------------------------------------------------------------


def _slow(body: dict[str, Any]) -> Line:
    _holes.arrays = []
    return Line(_ENCODER.encode(finite(body)), _holes.arrays)


_ANYTHING = {column.name for column in FIELDS if column.type == "JSON" and not column.is_dict}
"""Fields that may hold an empty list or object and mean it."""


def _rollout_dict(clean: Rollout) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for field in clean.__struct_fields__:
        value = getattr(clean, field)
        if value is None or (field not in _ANYTHING and value in ([], {})):
            continue
        if field == "messages":
            value = [_message_dict(m) for m in value]
        elif field in ("spans", "error"):
            value = msgspec.to_builtins(value)
        body[field] = value
    return body


def _message_dict(message: Message) -> dict[str, Any]:
    tokens, content = message.tokens, message.content
    body: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(message, tokens=None, content=None)
    )
    if isinstance(content, list):
        body["content"], body["parts"] = flatten_parts(content)
    elif content is not None:
        body["content"] = content
    if tokens is not None and any(True for _ in tokens.arrays()):
        body["tokens"] = tokens
    return body


def flatten_parts(parts: list[Part]) -> tuple[str, list[dict[str, Any]]]:
    """The text of all parts together, and the parts with `end` in the place of `text`."""
    text, rows = "", []
    for part in parts:
        row = msgspec.to_builtins(part)
        if part.text is not None:
            del row["text"]
            text += part.text
            row["end"] = len(text)
        rows.append(row)
    return text, rows


def join_parts(text: str, rows: list[dict[str, Any]]) -> list[Part]:
    """The parts that `flatten_parts` took apart."""
    parts, start = [], 0
    for row in rows:
        if type(row) is not dict or "type" not in row:
            parts.append(chat.part(row))
            continue
        end = row.get("end")
        end = end if type(end) is int else None
        piece = None if end is None else text[start:end]
        start = start if end is None else end
        fields = {k: v for k, v in _worded(row).items() if k != "end"}
        if fields.get("call") is not None:
            fields["call"] = to_call(fields["call"])
        parts.append(msgspec.convert({**fields, "text": piece}, Part))
    return parts


def to_call(row: Any) -> ToolCall:
    """A tool call as it was written, whatever was."""
    if type(row) is not dict or not row.keys() <= _CALL_FIELDS:
        return chat.tool_call(row)
    return msgspec.convert(_worded(row), ToolCall)


_CALL_FIELDS = frozenset(ToolCall.__struct_fields__)


_WORDS = {"id", "name", "type", "image"}


def _worded(row: dict[str, Any]) -> dict[str, Any]:
    """Text where text belongs: if a trainer gave a number as a name, it was written as a number."""
    return {
        k: str(v) if k in _WORDS and v is not None and type(v) is not str else v
        for k, v in row.items()
    }
