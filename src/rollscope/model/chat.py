"""Chat messages as other programs write them, to `Message` and back.

Understood: OpenAI chat messages (null content, parts, `tool_calls`, the old `function_call`,
`reasoning_content` and its cousins), and the parts of Anthropic's messages (`thinking`,
`tool_use`, `tool_result`). Anything else is kept: an unknown part in `Part.data`, an unknown key in
`Message.meta`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .records import Message, Part, ToolCall

_TEXT_PARTS = {"text", "input_text", "output_text"}
_REASONING_PARTS = {"reasoning", "thinking", "summary_text", "reasoning_text"}
_IMAGE_PARTS = {"image", "image_url", "input_image"}
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_KNOWN_KEYS = {
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", *_REASONING_KEYS,
}  # fmt: skip


def from_chat(message: Mapping[str, Any] | Any) -> Message:
    """One chat message as a `Message`.

    >>> from_chat({"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}]}).tool_calls[0].name
    'add'
    """
    body = as_mapping(message)
    role = str(body.get("role") or "unknown")
    content = _content(body.get("content"))
    calls = [tool_call(call) for call in pieces(body.get("tool_calls") or ())]
    if body.get("function_call"):
        calls.append(tool_call(body["function_call"]))
    reasoning = next((body[k] for k in _REASONING_KEYS if isinstance(body.get(k), str)), None)
    if reasoning:
        thought = Part(type="reasoning", text=reasoning)
        rest = [Part(type="text", text=content)] if isinstance(content, str) else content or []
        content = [thought, *rest]
    meta = {k: v for k, v in body.items() if k not in _KNOWN_KEYS and v is not None}
    meta |= {
        k: body[k]
        for k in _REASONING_KEYS
        if body.get(k) is not None and not isinstance(body[k], str)
    }
    return Message(
        role=role,
        content=content,
        name=body.get("name"),
        tool_calls=calls,
        tool_call_id=body.get("tool_call_id"),
        meta={str(k): v for k, v in meta.items()},
    )


def as_message(message: Any) -> Message:
    """A message in any common shape (a chat message, an SDK's object) as ours."""
    return message if isinstance(message, Message) else from_chat(message)


def to_chat(message: Message) -> dict[str, Any]:
    """An OpenAI chat message. Reasoning goes to `reasoning_content`, so the content is exactly what
    a template would see."""
    body: dict[str, Any] = {"role": message.role, "content": None}
    content = message.content
    calls = list(message.tool_calls)
    if isinstance(content, list):
        thoughts = [p.text or "" for p in content if p.type == "reasoning"]
        calls += [p.call for p in content if p.call is not None]
        shown = [p for p in content if p.type != "reasoning" and p.call is None]
        if thoughts:
            body["reasoning_content"] = "".join(thoughts)
        if all(p.type == "text" for p in shown):
            body["content"] = "".join(p.text or "" for p in shown) if shown else None
        else:
            body["content"] = [_chat_part(p) for p in shown]
    else:
        body["content"] = content
    if message.name is not None:
        body["name"] = message.name
    if calls:
        body["tool_calls"] = [_chat_call(call) for call in calls]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def tool_call(call: Any) -> ToolCall:
    """A tool call in any of the usual shapes. Arguments stay as the model wrote them; what is no
    call at all is kept as its arguments."""
    if isinstance(call, ToolCall):
        return call
    try:
        body = as_mapping(call)
    except Exception:
        return ToolCall(arguments=call)
    found = body.get("function") or body.get("custom")
    function = {"name": found} if isinstance(found, str) else found
    function = function if isinstance(function, Mapping) else body
    arguments = next(
        (function[k] for k in ("arguments", "input", "args", "parameters") if k in function),
        body.get("arguments"),
    )
    name = function.get("name")
    return ToolCall(
        id=_text(body.get("id") or body.get("call_id") or body.get("tool_call_id")),
        name=_text(name),
        arguments=arguments,
    )


def part(value: Any) -> Part:
    """One part of a content list. What is none is kept as its data."""
    if isinstance(value, Part):
        return value
    if isinstance(value, str):
        return Part(type="text", text=value)
    try:
        body = as_mapping(value)
    except Exception:
        return Part(type="other", data=value)
    kind = str(body.get("type") or ("text" if "text" in body else "other"))
    if kind in _TEXT_PARTS and isinstance(body.get("text"), str):
        return _rest(Part(type="text", text=body["text"]), body, {"text"})
    if kind in _REASONING_PARTS:
        key = next(
            (k for k in ("text", "thinking", "reasoning") if isinstance(body.get(k), str)), None
        )
        if key is not None:
            return _rest(Part(type="reasoning", text=body[key]), body, {key})
    if kind in _IMAGE_PARTS and (image := _image(body)) is not None:
        return Part(type="image", image=image)
    if kind in ("tool_use", "tool_call", "function_call"):
        return Part(type="tool_call", call=tool_call(body))
    if kind in ("tool_result", "function_call_output"):
        return _tool_result(body)
    return Part(type=kind, data={k: v for k, v in body.items() if k != "type"} or None)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Dicts as they are; structs, pydantic models and dataclasses as dicts."""
    if isinstance(value, Mapping):
        return value
    if hasattr(value, "model_dump"):
        dumped: Mapping[str, Any] = value.model_dump(exclude_none=True)
        return dumped
    found = msgspec.to_builtins(value, enc_hook=str)
    if isinstance(found, Mapping):
        return found
    raise TypeError(f"expected a chat message, part or tool call, found {value!r:.80}")


# -- pieces ----------------------------------------------------------------------------


def _content(content: Any) -> str | list[Part] | None:
    if content is None or isinstance(content, str):
        return content
    return [part(piece) for piece in pieces(content)]


def pieces(value: Any) -> list[Any]:
    """Parts or tool calls; one that is given without a list is a list of one."""
    is_one = isinstance(value, (str, bytes, Mapping, msgspec.Struct))
    return list(value) if isinstance(value, Iterable) and not is_one else [value]


def _rest(made: Part, body: Mapping[str, Any], used: set[str]) -> Part:
    """Keep what else stood in the part (signatures, annotations, cache marks)."""
    rest = {k: v for k, v in body.items() if k not in used and k != "type" and v not in (None, [])}
    made.data = rest or None
    return made


def _image(body: Mapping[str, Any]) -> str | None:
    for key in ("image_url", "image", "url"):
        found = body.get(key)
        found = found.get("url") if isinstance(found, Mapping) else found
        if isinstance(found, str):
            return found
    source = body.get("source")
    if isinstance(source, Mapping):
        if isinstance(source.get("url"), str):
            return str(source["url"])
        if isinstance(source.get("data"), str):
            return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    return None


def _tool_result(body: Mapping[str, Any]) -> Part:
    content = body.get("content", body.get("output"))
    if isinstance(content, list) and all(
        isinstance(c, Mapping) and isinstance(c.get("text"), str) for c in content
    ):
        content = "".join(c["text"] for c in content)
    answered = _text(body.get("tool_use_id") or body.get("call_id") or body.get("tool_call_id"))
    if isinstance(content, str):
        known = {"content", "output", "tool_use_id", "call_id", "tool_call_id"}
        return _rest(Part(type="tool_result", text=content, id=answered), body, known)
    return Part(type="tool_result", id=answered, data=content)


def _chat_part(piece: Part) -> dict[str, Any]:
    if piece.type == "text":
        return {"type": "text", "text": piece.text or ""}
    if piece.image is not None:
        return {"type": "image_url", "image_url": {"url": piece.image}}
    body: dict[str, Any] = {"type": piece.type}
    if piece.text is not None:
        body["text"] = piece.text
    if piece.id is not None:
        body["tool_call_id"] = piece.id
    if isinstance(piece.data, dict):
        body |= piece.data
    elif piece.data is not None:
        body["data"] = piece.data
    return body


def _chat_call(call: ToolCall) -> dict[str, Any]:
    arguments = None if call.arguments is None else as_text(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def as_text(value: Any) -> str:
    """A JSON value as text; a text as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parsed(value: Any) -> Any:
    """A value that may be JSON put into text: the value in it; any other text stays as it is."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
