"""The one place that says what the format cannot hold exactly.

`normalise(rollout)` is the rollout as it will be read back. Writing uses it whenever a
record does not fit the fast path; round-trip tests compare against it.

- Text: lone surrogates become U+FFFD.
- Streams: float32, except `mask` and `version`, which are int32.
- Free JSON (`meta`, `state`, `reference`, arguments, inputs, outputs): keys become text;
  NaN and infinities become the texts "NaN", "Infinity", "-Infinity"; enums their value;
  dataclasses, structs and mappings objects; sets, tuples, arrays and tensors lists; bytes
  base64; dates, UUIDs and decimals text; anything else a note in its place, which is reported.
- `task` becomes text. NaN where text belongs is a gap of a table, so nothing.
- Empty containers and absent ones are the same.
- Messages, parts, tool calls, spans and errors may be given as others write them.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from . import chat
from .facts import TRUTHS, type_of
from .records import Error, Fact, Message, Part, Rollout, Span, ToolCall
from .schema import FIELDS, MESSAGES, SPANS, Column
from .tokens import Tokens, detached

_TEXT_TYPES = (
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
)

MAX_DEPTH = 100
"""Free JSON nested deeper than this is cut, and reported."""


def normalise(rollout: Rollout, problems: list[str] | None = None, first: int = 0) -> Rollout:
    """A deep copy as the format holds it. What was lost is appended to `problems`.

    `first` is the number of the first message given here, when earlier ones are written.
    """
    p = problems if problems is not None else []
    fields = {name: clean(getattr(rollout, name), name, p) for name, clean in _CLEANED.items()}
    return Rollout(
        **fields,
        error=_error(rollout.error),
        messages=[_message(m, n, p) for n, m in enumerate(rollout.messages, first)],
        spans=[_span(s, p) for s in rollout.spans],
    )


def normalise_fact(fact: Fact, problems: list[str] | None = None) -> Fact:
    """A fact as the format holds it. What its field cannot hold is left out and reported."""
    p = problems if problems is not None else []
    name, value = text(fact.name), fact.value
    if value is not None:
        value = _CLEANERS[type_of(name)](value, name, p)
        if type(value) is float and not math.isfinite(value):
            value = non_finite(value)
    return Fact(
        rollout=text(fact.rollout),
        name=name,
        value=value,
        stream=fact.stream,
        message=fact.message,
        author=text(fact.author),
        time=fact.time,
        n=fact.n,
    )


def text(value: Any) -> Any:
    """`value` as clean text. None stays None, and NaN, a gap of a table, becomes it."""
    if value is None or (type(value) is float and not math.isfinite(value)):
        return None
    value = value if type(value) is str else str(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def plain(
    value: Any, where: str, problems: list[str], depth: int = 0, path: tuple[int, ...] = ()
) -> Any:
    """`value` as JSON can hold it. A value that JSON cannot hold is replaced by a note and
    reported."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where, problems, depth + 1, path)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else non_finite(value)
    if id(value) in path:
        return _refused(value, where, problems, "it contains itself")
    if depth > MAX_DEPTH:
        return _refused(value, where, problems, f"nested deeper than {MAX_DEPTH}")
    path = (*path, id(value))
    if isinstance(value, Mapping):
        made = {
            _key(k): plain(v, f"{where}.{k}" if depth < 3 else where, problems, depth + 1, path)
            for k, v in value.items()
        }
        if len(made) < len(value):
            problems.append(f"{where}: some of its keys are the same as text; the last is kept")
        return made
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, _TEXT_TYPES):
        return msgspec.to_builtins(value)
    if isinstance(value, Tokens):
        return {n: plain(v, where, problems, depth + 1, path) for n, v in value.arrays()}
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value), where, problems, depth + 1, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return plain(fields, where, problems, depth + 1, path)
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, torch and JAX tensors
        try:
            return plain(detached(value).tolist(), where, problems, depth + 1, path)
        except Exception as error:
            return _refused(value, where, problems, f"tolist() failed: {error}")
    if isinstance(value, (list, tuple, set, frozenset)) or (
        isinstance(value, Iterable) and hasattr(value, "__len__")
    ):
        return [plain(v, where, problems, depth + 1, path) for v in value]
    if hasattr(value, "model_dump"):  # pydantic
        try:
            return plain(value.model_dump(), where, problems, depth + 1, path)
        except Exception as error:
            return _refused(value, where, problems, f"model_dump() failed: {error}")
    return _refused(value, where, problems, "not JSON")


def non_finite(value: float) -> str:
    """The text that stands for a number JSON cannot write. Engines read it as that number."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def finite(value: Any) -> Any:
    """Plain values with such texts in the places of numbers that JSON cannot write."""
    if type(value) is float:
        return value if value - value == 0 else non_finite(value)
    if type(value) is list:
        return [finite(v) for v in value]
    if type(value) is dict:
        return {k: finite(v) for k, v in value.items()}
    return value


def _refused(value: Any, where: str, problems: list[str], why: str) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    problems.append(f"{where}: a {kind} was not stored ({why})")
    return f"<{kind} not stored: {why}>"


def _key(key: Any) -> str:
    if key is None:
        return "null"
    if key is True or key is False:
        return str(key).lower()
    if isinstance(key, enum.Enum):
        return _key(key.value)
    return str(text(str(key)))


def _object(value: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not value:
        return {}
    result = plain(value, where, problems)
    if isinstance(result, dict):
        return result
    problems.append(f"{where}: expected a mapping, found {type(value).__name__}; kept as 'value'")
    return {"value": result}


def _number(value: Any, where: str, problems: list[str]) -> float | None:
    if value is None:
        return None
    try:
        return float(detached(value))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        problems.append(f"{where}: expected a number, found {value!r:.80}; left out")
        return None


def _whole(value: Any, where: str, problems: list[str]) -> int | None:
    if value is None:
        return None
    try:
        given = detached(value)
        number = int(given)
        if -(2**63) <= number < 2**63 and (isinstance(given, str) or number == given):
            return number
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    problems.append(f"{where}: expected a whole number, found {value!r:.80}; left out")
    return None


def _truth(value: Any, where: str, problems: list[str]) -> bool | None:
    if isinstance(value, str) and value.lower() not in TRUTHS:
        problems.append(f"{where}: expected true or false, found {value!r:.80}; left out")
        return None
    return (
        TRUTHS[value.lower()] if isinstance(value, str) else None if value is None else bool(value)
    )


def _numbers(values: Any, where: str, problems: list[str]) -> dict[str, float]:
    values = _mapping(values, where, problems)
    clean = {text(str(k)): _number(v, f"{where}.{k}", problems) for k, v in values.items()}
    return {name: number for name, number in clean.items() if number is not None}


def _mapping(values: Any, where: str, problems: list[str]) -> Mapping[Any, Any]:
    if values is not None and not isinstance(values, Mapping):
        problems.append(f"{where}: expected a mapping, found {values!r:.80}; left out")
    return values if isinstance(values, Mapping) else {}


def _texts(values: Any, where: str, problems: list[str]) -> dict[str, str]:
    values = _mapping(values, where, problems)
    return {text(str(k)): text(v) for k, v in values.items() if v is not None}


_Cleaner = Callable[[Any, str, list[str]], Any]

_CLEANERS: dict[str, _Cleaner] = {
    "VARCHAR": lambda value, where, problems: text(value),
    "INTEGER": _whole,
    "BIGINT": _whole,
    "DOUBLE": _number,
    "BOOLEAN": _truth,
    "MAP(VARCHAR, DOUBLE)": _numbers,
    "MAP(VARCHAR, VARCHAR)": _texts,
    "JSON": plain,
    "ERROR": lambda value, where, problems: msgspec.to_builtins(_error(value)),
}

_CLEANED: dict[str, _Cleaner] = {
    column.name: _object if column.type == "JSON" and column.is_dict else _CLEANERS[column.type]
    for column in FIELDS
}
"""For each field of a rollout: the function that makes it fit its column."""


def as_error(value: Any, kind: str | None = None) -> Error:
    """An error given as an exception, a mapping or a text; of an exception, `kind` is whose fault
    it was."""
    if isinstance(value, Error):
        return value
    if isinstance(value, BaseException):
        try:
            said = str(value) or None
        except Exception:  # a class with a broken __str__ is still worth its name
            said = None
        return Error(kind=kind, type=type(value).__name__, text=said)
    if isinstance(value, Mapping) and value.keys() <= set(Error.__struct_fields__):
        return Error(**value)
    return Error(text=str(value))


def _error(error: Any) -> Error | None:
    if error is None:
        return None
    error = as_error(error)
    clean = Error(kind=text(error.kind), type=text(error.type), text=text(error.text))
    return clean if clean != Error() else None


def _call(call: Any, problems: list[str]) -> ToolCall:
    call = chat.tool_call(call)
    return ToolCall(
        id=text(call.id),
        name=text(call.name),
        arguments=plain(call.arguments, "arguments", problems),
    )


def _part(part: Any, problems: list[str]) -> Part:
    part = chat.part(part)
    return Part(
        type=text(part.type),
        text=text(part.text),
        image=text(part.image),
        call=None if part.call is None else _call(part.call, problems),
        id=text(part.id),
        data=plain(part.data, "part", problems),
    )


def _fitted(record: Any, names: dict[str, _Cleaner], where: str, p: list[str]) -> dict[str, Any]:
    return {name: fit(getattr(record, name), f"{where}.{name}", p) for name, fit in names.items()}


def _by_name(record: type[msgspec.Struct], table: Iterable[Column]) -> dict[str, _Cleaner]:
    """For each field of a record that is a column: the function that makes it fit."""
    known = (column for column in table if column.name in record.__struct_fields__)
    return {c.name: _object if c.name == "meta" else _CLEANERS[c.type] for c in known}


_OF_MESSAGE = _by_name(Message, MESSAGES)
del _OF_MESSAGE["tool_calls"]
_OF_SPAN = _by_name(Span, SPANS)


def _message(m: Any, n: int, p: list[str]) -> Message:
    m = chat.as_message(m)
    fields = _fitted(m, _OF_MESSAGE, "message", p)
    parent = fields["parent"]
    if parent is not None and not -1 <= parent < n:
        p.append(f"messages[{n}].parent: {parent} is no earlier message; taken as a new root")
        fields["parent"] = -1
    elif parent == n - 1:
        fields["parent"] = None
    content = m.content
    is_text = isinstance(content, str) or content is None
    fields["content"] = (
        text(content) if is_text else [_part(part, p) for part in chat.pieces(content)]
    )
    fields["tool_calls"] = [_call(c, p) for c in chat.pieces(m.tool_calls or ())]
    fields["tokens"] = None if m.tokens is None else m.tokens.normalised()
    return Message(**fields)


def _span(s: Any, p: list[str]) -> Span:
    if not isinstance(s, Span):
        given = dict(chat.as_mapping(s))
        known = {name: given.pop(name) for name in Span.__struct_fields__ if name in given}
        meta = {**_mapping(known.pop("meta", None), "span.meta", p), **given}
        s = Span(**{"name": "", **known, "meta": meta})
    return Span(**_fitted(s, _OF_SPAN, "span", p), error=_error(s.error))
