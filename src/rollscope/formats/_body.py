"""One object of JSON as a rollout: Rollscope's own shape, or the usual ones of chat data."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import Message, Part, Rollout, Span, Tokens
from ..model.chat import from_chat

MESSAGE_KEYS = ("messages", "conversation", "conversations")
ANSWER_KEYS = ("completion", "response", "output")
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


def _messages(body: dict[str, Any]) -> list[Message]:
    for key in MESSAGE_KEYS:
        if isinstance(body.get(key), list):
            return [_message(m) for m in body.pop(key)]
    answer_key = next((k for k in ANSWER_KEYS if body.get(k) is not None), None)
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
