"""Conversations as chat templates take them."""

from __future__ import annotations

from typing import Any

from ..model import Message, Rollout
from ..model.chat import to_chat
from ._encode import arguments


def chat(message: Message) -> dict[str, Any]:
    """A message as chat templates take it: arguments of tools as objects, content never null."""
    body = to_chat(message)
    if body["content"] is None:
        body["content"] = ""
    for call in body.get("tool_calls", ()):
        call["function"]["arguments"] = arguments(call["function"]["arguments"])
    return body


def tools(rollout: Rollout) -> list[dict[str, Any]] | None:
    """The tools that the policy could call, as chat templates take them, if they were recorded.
    `meta.tools` is a list of JSON schemas in one of OpenAI's two shapes."""
    known = rollout.meta.get("tools")
    if not isinstance(known, list) or not known:
        return None
    made = []
    for tool in known:
        if not isinstance(tool, dict):
            return None
        if "function" in tool:
            made.append(tool)
        elif "name" in tool:
            function = {k: v for k, v in tool.items() if k not in ("type", "strict")}
            made.append({"type": "function", "function": function})
        else:
            return None
    return made
