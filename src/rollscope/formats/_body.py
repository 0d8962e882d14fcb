"""One object of JSON as a rollout: Rollscope's own shape, or the usual ones of chat data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..model import Message, Part, Rollout, Span, Tokens
from ..model.chat import from_chat
from ..model.problem import Problem
from ..model.schema import FIELDS

T = TypeVar("T")

MESSAGE_KEYS = ("messages", "conversation", "conversations")
ANSWER_KEYS = ("completion", "response", "output")
_FIELDS = {f for f in Rollout.__struct_fields__ if f not in ("messages", "spans")}
ALIASES = {
    "score": "reward",
    "sample_index": "task",
    "task_id": "task",
    "rollout_n": "index",
    "ground_truth": "reference",
    "answer": "reference",
    "finish_reason": "stop_reason",
    "experiment_name": "run",
    "global_step": "step",
}
"""Names of others for fields of a rollout."""
_TYPES = {column.name: column.type for column in FIELDS}
_SHAREGPT = {"human": "user", "gpt": "assistant", "observation": "tool"}
_MESSAGE_FIELDS = set(Message.__struct_fields__)


def decode(body: dict[str, Any]) -> Rollout:
    """The rollout that an object of either shape describes. Raises ValueError or TypeError."""
    body = dict(body)
    messages = _messages(body)
    spans = [converted(s, Span) for s in body.pop("spans", None) or ()]
    fields: dict[str, Any] = {}
    meta = dict(body.pop("meta", None) or {})
    for key, value in body.items():
        name = key if key in _FIELDS else ALIASES.get(key)
        if name is None or name in fields or (name != key and name in body):
            meta[key] = value
        elif value is not None:
            fields[name] = _typed(value, _TYPES.get(name))
    if isinstance(fields.get("rewards"), dict):
        fields["rewards"] = {k: _typed(v, "DOUBLE") for k, v in fields["rewards"].items()}
    rollout = converted({**fields, "meta": meta}, Rollout)
    rollout.messages, rollout.spans = messages, spans
    return rollout


def described(body: dict[str, Any]) -> Rollout:
    """`decode`; an object that has nothing of a rollout raises ValueError, too. A name is nothing:
    all logs have an `id`. What Rollscope has written says where it is from."""
    rollout = decode(body)
    blank = Rollout(id=rollout.id, key=rollout.key, meta=rollout.meta)
    if rollout == blank and "messages" not in body:
        there = ", ".join(map(str, rollout.meta)) or "nothing"
        raise ValueError(f"nothing of a rollout in it; it has: {there:.300}")
    return rollout


def _typed(value: Any, type: str | None) -> Any:
    """A value as its column has it, where nothing is lost: names that are numbers, whole numbers
    with a point, rewards that are yes or no."""
    if type == "VARCHAR" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if type == "BIGINT" and isinstance(value, float) and value.is_integer():
        return int(value)
    if type == "DOUBLE" and isinstance(value, int):
        return float(value)
    return value


def _messages(body: dict[str, Any]) -> list[Message]:
    for key in MESSAGE_KEYS:
        if body.get(key) is not None:
            return [_message(m) for m in _listed(body.pop(key), key)]
    answer_key = next((k for k in ANSWER_KEYS if body.get(k) is not None), None)
    if body.get("prompt") is None and answer_key is None:
        return []
    found = [_message(m) for m in _chat(body.pop("prompt", None), "user")]
    if answer_key is not None:
        answers = [_message(m, "assistant") for m in _chat(body.pop(answer_key), "assistant")]
        for answer in answers:
            if answer.role == "assistant" and answer.sampled is None:
                answer.sampled = True
        found += answers
    return found


def _chat(value: Any, role: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return list(value) if isinstance(value, list) else [value]


def _listed(value: Any, key: str) -> list[Any]:
    """A list, also one that was put into text once more."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"{key}: expected a list, found the text {value!r:.60}") from None
    if not isinstance(value, list):
        raise TypeError(f"{key}: expected a list, found {value!r:.60}")
    return value


def _message(body: Any, role: str = "unknown") -> Message:
    """Our own message if it looks like one, else a chat message of the usual shape."""
    if not isinstance(body, dict):
        raise TypeError(f"expected a message, found {body!r:.60}")
    if "from" in body and "role" not in body:
        body = _sharegpt(body)
    content, calls = body.get("content"), body.get("tool_calls")
    if not isinstance(content, (str, list, dict, type(None))):
        raise TypeError(f"content: expected text, parts or null, found {content!r:.60}")
    texts = {k: str(body[k]) for k in ("tool_call_id", "name") if isinstance(body.get(k), int)}
    body = {"role": role, **body, **texts}
    if isinstance(calls, str):
        body["tool_calls"] = _listed(calls, "tool_calls") if calls.strip() else []
    own = {k: body[k] for k in _MESSAGE_FIELDS & body.keys() if k not in ("content", "tool_calls")}
    chat = {k: v for k, v in body.items() if k not in own or k in ("role", "name", "tool_call_id")}
    message = from_chat({k: v for k, v in chat.items() if k not in own or k == "role"})
    tokens = own.pop("tokens", None)
    extra = dict(own.pop("meta", None) or {})
    typed = converted({**own, "role": message.role}, Message)
    return msgspec.structs.replace(
        typed,
        content=_own_parts(body.get("content"), message.content),
        tool_calls=message.tool_calls,
        tokens=None if not tokens else _read_tokens(tokens),
        meta={**message.meta, **extra},
    )


def _sharegpt(body: dict[str, Any]) -> dict[str, Any]:
    """`{"from": "human", "value": "..."}`, its calls and answers of tools included."""
    said, value = body["from"], body.get("value")
    rest = {k: v for k, v in body.items() if k not in ("from", "value")}
    if said == "function_call" and isinstance(value, str):
        try:
            return {"role": "assistant", "content": None, "tool_calls": [json.loads(value)], **rest}
        except ValueError:
            pass  # no call: kept as the text it is
    return {"role": _SHAREGPT.get(said, said), "content": value, **rest}


def converted(values: Any, kind: type[T]) -> T:
    """A record out of plain values; ValueError names field, value and what is expected."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        found = values
        for step in path.rstrip("`").strip(".").split("."):
            found = found.get(step, found) if isinstance(found, dict) else found
        field = path.rstrip("`").strip(".") or "the line"
        hint = " (parts of a reward go to `rewards`)" if field == "reward" else ""
        raise ValueError(f"{field}: {what}: {found!r:.60}{hint}") from None


def _own_parts(raw: Any, understood: str | list[Part] | None) -> str | list[Part] | None:
    """Parts as we export them carry `image`, `call` and `data` as they are."""
    if isinstance(raw, list) and raw and all(_is_own_part(p) for p in raw):
        return [msgspec.convert(p, Part) for p in raw]
    return understood


def _is_own_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and "type" in part
        and part.keys() <= set(Part.__struct_fields__)
        and not isinstance(part.get("image"), dict)
        and part["type"] not in ("input_text", "output_text")
    )


def _read_tokens(body: dict[str, Any]) -> Tokens:
    numbers = {k: [_number(v) for v in values] for k, values in body.items() if k != "streams"}
    streams = {k: [_number(v) for v in values] for k, values in (body.get("streams") or {}).items()}
    return Tokens(numbers.pop("ids", None), numbers.pop("ends", None), {**numbers, **streams})


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


class Unsaid:
    """Counts the messages in which no text was found, or no role, to tell it at the file's end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts = {"text": 0, "role": 0}
        self._first: dict[str, str] = {}

    def look(self, rollout: Rollout, place: str) -> None:
        for message in rollout.messages:
            if message.role == "unknown":
                self._note("role", message, place)
            is_silent = message.content is None and not message.tool_calls
            if is_silent and message.tokens is None and message.meta:
                self._note("text", message, place)

    def _note(self, what: str, message: Message, place: str) -> None:
        self._counts[what] += 1
        if what not in self._first:
            keys = ", ".join(sorted(message.meta)) or "nothing else"
            self._first[what] = f"the first in {place}; it has: {keys}"

    def problems(self) -> Iterator[Problem]:
        for what, count in self._counts.items():
            if count:
                hint = {"text": "content", "role": "role"}[what]
                say = f"{count:,} messages without a {what} ({self._first[what]})"
                how = f"say where it is: columns --map '... messages.{hint}=KEY'"
                yield Problem(self._path, None, f"{say}; {how}")
