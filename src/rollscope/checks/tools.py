"""The tools that a rollout may call, where the record says which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..model import Message

_LISTED = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.S)
"""How Qwen's and Hermes' chat templates write tools into the system message."""


def offered(meta: Mapping[str, Any], messages: Iterable[Message]) -> dict[str, Mapping[str, Any]]:
    """The tools by name, each with its schema; empty: not known."""
    found = _named(meta.get("tools"))
    if not found:
        for message in messages:
            if message.role != "system":
                break
            if isinstance(message.content, str):
                for block in _LISTED.findall(message.content):
                    found |= _named([_json(line) for line in block.splitlines()])
    return found


def _named(tools: Any) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            inner = tool.get("function")
            tool = inner if isinstance(inner, Mapping) else tool
            if isinstance(tool.get("name"), str):
                found[tool["name"]] = tool
    return found


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def required(schema: Mapping[str, Any]) -> list[str]:
    """The arguments that a tool cannot do without."""
    parameters = schema.get("parameters") or schema.get("input_schema") or {}
    names = parameters.get("required") if isinstance(parameters, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


_FAILED = re.compile(
    r"^\W{0,4}(?:error|exception|traceback|failed|invalid|unknown tool|tool .{0,40}not found)\b"
    r"|Traceback \(most recent call last\)|^\w*(?:Error|Exception):"
    r"|^\W{0,4}HTTP\S{0,5} ?[45]\d\d\b|\A[^\n]{0,80}: command not found"
    r"|\A[^\n]{0,60}\btimed out\b|\A[^\n]{0,80}: (?:no such file or directory|permission denied)"
    r"|\"(?:error|is_error)\"\s*:\s*(?:true|\"[^\"])",
    re.I,
)


def failed(said: str) -> bool:
    """Does a tool's answer say that the call failed?"""
    return bool(_FAILED.search(said[:2000]))
