"""Items of the Responses API (messages, reasoning, function calls and outputs) to messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..model import Message, Part, Tokens, ToolCall
from ..model.chat import from_chat, part
from ..model.conversation import text

_TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def from_items(items: Iterable[Any], *, sampled: bool | None = None) -> list[Message]:
    """The messages of these items. `sampled`: the policy wrote the assistant's."""
    messages = []
    for item in _flat(items):
        if isinstance(item, str):
            messages.append(Message(role="user", content=item))
            continue
        message = _message(item)
        if sampled and message.role == "assistant":
            message.sampled = True
        messages.append(message)
    return messages


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list):  # some agents nest what one step made
            yield from _flat(item)
        elif item is not None:
            yield item


def _message(item: Mapping[str, Any]) -> Message:
    kind = item.get("type") or "message"
    rest = {k: v for k, v in item.items() if k not in ("type", "role", *_USED.get(kind, ()))}
    tokens = _tokens(item)
    meta = {k: v for k, v in rest.items() if v is not None and k not in _TOKENS}
    if kind == "function_call":
        call = ToolCall(
            id=item.get("call_id") or item.get("id"),
            name=item.get("name"),
            arguments=item.get("arguments"),
        )
        return Message(role="assistant", tool_calls=[call], tokens=tokens, meta=meta)
    if kind == "function_call_output":
        output = item.get("output")
        said = output if isinstance(output, str) or output is None else json.dumps(output)
        return Message(role="tool", content=said, tool_call_id=item.get("call_id"), meta=meta)
    if kind == "reasoning":
        pieces = [*(item.get("summary") or ()), *(item.get("content") or ())]
        parts = [_reasoning(piece) for piece in pieces]
        return Message(role="assistant", content=parts, tokens=tokens, meta=meta)
    if kind == "message":
        content = item.get("content")
        made = from_chat({"role": item.get("role") or "assistant", "content": content})
        if isinstance(made.content, list) and _all_plain(made.content):
            made.content = text(made)
        made.tokens, made.meta = tokens, meta
        return made
    return Message(role="unknown", content=[part({"type": kind, **rest})])


_USED = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": ("summary", "content"),
    "message": ("content",),
}


def _reasoning(piece: Any) -> Part:
    made = part(piece)
    return Part(type="reasoning", text=made.text, data=made.data) if made.text else made


def _all_plain(parts: list[Part]) -> bool:
    return all(p.type == "text" and p.data is None for p in parts)


def _tokens(item: Mapping[str, Any]) -> Tokens | None:
    """What the policy drew. The prompt's ids are those of all messages before: not added here."""
    ids = item.get("generation_token_ids")
    if not ids:
        return None
    logprobs = item.get("generation_log_probs")
    if logprobs is not None and len(logprobs) != len(ids):
        logprobs = None
    return Tokens(ids, logprob=logprobs)
