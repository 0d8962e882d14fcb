"""JSON lines: a rollout a line. The default format, in and out.

Two shapes are read, and may be mixed:

- Rollscope's own: an object with the fields of `Rollout`, as `rollscope export jsonl` writes.
- Chat: `{"messages": [...], "reward": 1.0, ...}` with OpenAI-style messages, or `prompt` (text
  or messages) and `completion` / `response`. Keys that are no field of a rollout go to `meta`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from ..model import Message, Part, Rollout, Span, Tokens, normalise
from ..model.chat import from_chat
from ..model.normalise import non_finite
from ..model.problem import Problem
from ._files import opened as _open

_MESSAGE_KEYS = ("messages", "conversation", "conversations")
_ANSWER_KEYS = ("completion", "response", "output")
_FIELDS = {f for f in Rollout.__struct_fields__ if f not in ("messages", "spans")}
_ALIASES = {
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
_MESSAGE_FIELDS = set(Message.__struct_fields__)


def recognise(path: Path) -> bool:
    """A text file whose first line is an object with messages, or a prompt and an answer."""
    if not path.is_file() or path.name.removesuffix(".gz").rpartition(".")[2] not in (
        "jsonl",
        "ndjson",
        "json",
    ):
        return False
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, EOFError):
        with _open(path) as file:
            first = msgspec.json.decode(file.readline())
        return isinstance(first, dict) and (
            any(k in first for k in _MESSAGE_KEYS)
            or ("prompt" in first and any(k in first for k in _ANSWER_KEYS))
        )
    return False


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every line as a rollout; a bad line is reported and left out."""
    with _open(path) as file:
        for number in itertools.count(1):
            try:
                line = file.readline()
            except (OSError, EOFError) as error:
                yield Problem(path, number, f"the file cannot be read further: {error}")
                return
            if not line:
                return
            if line.strip():
                yield _line(path, number, line)


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> int:
    """One line a rollout, as `read` takes it. Returns how many."""
    count = 0
    for rollout in rollouts:
        out.write(encode(rollout) + b"\n")
        count += 1
    return count


def encode(rollout: Rollout) -> bytes:
    """One rollout as one line of JSON, everything in it."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(normalise(rollout), enc_hook=_tokens)))


def decode(body: dict[str, Any]) -> Rollout:
    """The rollout that an object of either shape describes. Raises ValueError or TypeError."""
    body = dict(body)
    messages = _messages(body)
    spans = [msgspec.convert(s, Span, strict=False) for s in body.pop("spans", None) or ()]
    fields: dict[str, Any] = {}
    meta = dict(body.pop("meta", None) or {})
    for key, value in body.items():
        name = key if key in _FIELDS else _ALIASES.get(key)
        if name is None or name in fields or (name != key and name in body):
            meta[key] = value
        elif value is not None:
            fields[name] = value
    rollout = msgspec.convert({**fields, "meta": meta}, Rollout, strict=False)
    rollout.messages, rollout.spans = messages, spans
    return rollout


def _line(path: Path, number: int, line: bytes) -> Rollout | Problem:
    try:
        body = msgspec.json.decode(line)
        if not isinstance(body, dict):
            return Problem(path, number, f"expected an object, found {line[:60]!r}")
        return decode(body)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        return Problem(path, number, f"{error}")


def _messages(body: dict[str, Any]) -> list[Message]:
    for key in _MESSAGE_KEYS:
        if isinstance(body.get(key), list):
            return [_message(m) for m in body.pop(key)]
    answer_key = next((k for k in _ANSWER_KEYS if body.get(k) is not None), None)
    if body.get("prompt") is None and answer_key is None:
        return []
    found = [_message(m) for m in _chat(body.pop("prompt", None), "user")]
    if answer_key is not None:
        answers = [_message(m) for m in _chat(body.pop(answer_key), "assistant")]
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


def _message(body: Any) -> Message:
    """Our own message if it looks like one, else a chat message of the usual shape."""
    if not isinstance(body, dict):
        raise TypeError(f"expected a message, found {body!r:.60}")
    if "from" in body and "role" not in body:  # ShareGPT
        role = {"human": "user", "gpt": "assistant"}.get(body["from"], body["from"])
        body = {"role": role, "content": body.get("value")}
    own = {k: body[k] for k in _MESSAGE_FIELDS & body.keys() if k not in ("content", "tool_calls")}
    chat = {k: v for k, v in body.items() if k not in own or k in ("role", "name", "tool_call_id")}
    message = from_chat({k: v for k, v in chat.items() if k not in own or k == "role"})
    tokens = own.pop("tokens", None)
    extra = dict(own.pop("meta", None) or {})
    typed = msgspec.convert({**own, "role": message.role}, Message, strict=False)
    return msgspec.structs.replace(
        typed,
        content=_own_parts(body.get("content"), message.content),
        tool_calls=message.tool_calls,
        tokens=None if not tokens else _read_tokens(tokens),
        meta={**message.meta, **extra},
    )


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
    )


def _read_tokens(body: dict[str, Any]) -> Tokens:
    numbers = {k: [_number(v) for v in values] for k, values in body.items() if k != "streams"}
    streams = {k: [_number(v) for v in values] for k, values in (body.get("streams") or {}).items()}
    return Tokens(numbers.pop("ids", None), numbers.pop("ends", None), {**numbers, **streams})


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _tokens(tokens: Any) -> Any:
    if isinstance(tokens, Tokens):
        return dict(tokens.arrays())
    raise NotImplementedError(f"cannot write a {type(tokens).__name__}")


def _finite(value: Any) -> Any:
    """JSON has no NaN: the texts that `read` (and any engine) takes for those numbers."""
    if type(value) is float:
        return value if value - value == 0 else non_finite(value)
    if type(value) is list:
        return [_finite(v) for v in value]
    if type(value) is dict:
        return {k: _finite(v) for k, v in value.items()}
    return value
