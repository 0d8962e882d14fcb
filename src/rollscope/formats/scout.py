"""Inspect Scout's transcripts: a folder of Parquet files that `transcripts_from` opens.

Columns with Scout's names are its schema. Scout calls all others metadata and filters by them
(`metadata["step"]`). Messages are Inspect's chat messages as JSON text. A transcript has one
conversation, so Scout gets the branch of a rollout that ends last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..model import Message, Part, Rollout, ToolCall
from ..model.chat import from_chat, parsed
from ..model.cleaner import Cleaner
from ..model.conversation import branches, by_policy, tool_calls
from ..model.problem import Problem
from ..model.schema import FIELDS
from ..store.read.reader import Reader
from ._body import decode
from ._encode import arguments, field, text
from ._export import ExportPlan
from ._files import seconds
from ._rows import columns, rollouts
from ._tables import TableRow, Tables

SCHEMA = {
    **dict.fromkeys(
        (
            "transcript_id", "source_type", "source_id", "date", "task_set", "task_id",
        ),
        "VARCHAR",
    ),
    "task_repeat": "BIGINT",
    **dict.fromkeys(("agent", "model", "model_options", "score", "score_explanation"), "VARCHAR"),
    "message_count": "BIGINT",
    "total_time": "DOUBLE",
    "total_tokens": "BIGINT",
    **dict.fromkeys(("error", "limit", "messages"), "VARCHAR"),
}  # fmt: skip
"""Scout's own columns (version 0.6). `success` is left out: we do not know what counts as one."""

_IN_SCHEMA = ("id", "dataset", "task", "index", "environment", "sampling", "reward_texts", "time",
              "start", "end")  # fmt: skip
"""Fields that Scout has columns of its own for."""

_IN_SCHEMA_AS = {
    "id": "transcript_id", "dataset": "task_set", "task": "task_id", "index": "task_repeat",
    "environment": "agent",
}  # fmt: skip
"""Fields that have a column of Scout's under another name."""

METADATA = {
    column.name: column.type if column.is_scalar else "VARCHAR"
    for column in FIELDS
    if column.name not in _IN_SCHEMA
}
COLUMNS = SCHEMA | METADATA

_JSON = [c.name for c in FIELDS if c.name in METADATA and not c.is_scalar]
_ROLES = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}
_SEVERAL = "branches: Scout has one conversation a transcript, the one that ends last is in it"


def writer(reader: Reader, plan: ExportPlan, cleaner: Cleaner | None) -> Tables:
    return Tables(COLUMNS, row)


def recognise(path: Path) -> bool:
    """A Parquet file of transcripts, whoever made it."""
    telling = {"transcript_id", "source_type", "messages"}
    return path.is_file() and path.suffix == ".parquet" and columns(path) >= telling


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every transcript as a rollout."""
    return rollouts(path, _rollout)


def _rollout(found: dict[str, Any]) -> Rollout:
    """`row`, the other way round. A score is the reward if it is a number."""
    found = {name: value for name, value in found.items() if value is not None}
    body: dict[str, Any] = {}
    for name, column in {**{name: name for name in METADATA}, **_IN_SCHEMA_AS}.items():
        if column in found:
            value = found.pop(column)
            body[name] = parsed(value) if name in _JSON else value
    if "model_options" in found:
        body["sampling"] = parsed(found.pop("model_options"))
    if "reward" not in body and isinstance(score := parsed(found.get("score")), (int, float)):
        body["reward"] = float(score)
    if "score_explanation" in found:
        body["reward_texts"] = {"score": found.pop("score_explanation")}
    is_ours = found.get("source_type") == "rollscope"
    if "date" in found:
        date = seconds(str(found.pop("date")))
        if "total_time" in found and date is not None:
            body["start"], body["end"] = date, date + found["total_time"]
        else:  # of ours it is when it was logged, if nobody knows when it began
            body["time" if is_ours else "start"] = date
    if "limit" in found:
        body["error"] = {"kind": "limit", "type": found.pop("limit")}
    elif "error" in found:
        body["error"] = {"text": found.pop("error")}
    messages = [_inspected(message) for message in json.loads(found.pop("messages") or "[]")]
    made = {"source_type", "source_id", "message_count", "total_tokens", "total_time", "filename"}
    about = {k: v for k, v in found.items() if k not in made}
    if is_ours:
        if body.get("dataset") == body.get("environment"):
            body.pop("dataset", None)  # it stood there in the place of one
        about.pop("score", None)  # it is the reward, as text
        about.pop("model", None)  # it is in `meta`
        body["project"], _, body["run"] = str(found.get("source_id", "")).partition("/")
    body["meta"] = {**body.get("meta", {}), **{k: parsed(v) for k, v in about.items()}}
    rollout = decode({name: value for name, value in body.items() if value is not None})
    rollout.messages = messages
    return rollout


def _inspected(body: dict[str, Any]) -> Message:
    """One of Inspect's chat messages."""
    about = body.pop("metadata", None) or {}
    source, named = body.pop("source", None), body.pop("function", None)
    body.pop("id", None)
    calls = body.pop("tool_calls", None) or ()
    message = from_chat({**body, "role": about.get("role", body["role"])})
    if isinstance(message.content, list):
        message.content = [_unpacked(part) for part in message.content]
    message.name = about.get("name") or named or message.name
    message.tool_calls = [_called(call) for call in calls]
    message.sampled = True if source == "generate" else message.sampled
    message.meta |= parsed(about["meta"]) if "meta" in about else {}
    message.meta |= {k: v for k, v in about.items() if k not in ("role", "name", "meta")}
    return message


def _unpacked(part: Part) -> Part:
    """A part of another type lies in one of Inspect's type `data`."""
    inner = part.data.get("data") if part.type == "data" and isinstance(part.data, dict) else None
    if isinstance(inner, dict) and inner.keys() == {"type", "data"}:
        return Part(type=inner["type"], data=inner["data"])
    return part


def _called(call: dict[str, Any]) -> ToolCall:
    """A call. What the model wrote in the place of an object lies in `raw`."""
    given = call.get("arguments")
    is_raw = bool(call.get("parse_error")) and isinstance(given, dict) and given.keys() == {"raw"}
    made = given["raw"] if is_raw and isinstance(given, dict) else given
    return ToolCall(id=call.get("id"), name=call.get("function") or None, arguments=made)


def row(rollout: Rollout) -> TableRow:
    """A rollout as a transcript."""
    ways = branches(rollout.messages)
    messages = ways[-1] if ways else []
    made = [_message(m, f"{rollout.id}-{n}") for n, m in enumerate(messages)]
    reward = rollout.reward
    tokens = sum(len(m.tokens) for m in rollout.messages if m.tokens is not None)
    error = rollout.error
    values = {
        "transcript_id": rollout.id,
        "source_type": "rollscope",
        "source_id": f"{rollout.project}/{rollout.run}",
        "date": _date(rollout.start if rollout.start is not None else rollout.time),
        "task_set": rollout.dataset or rollout.environment,
        "task_id": None if rollout.task is None else str(rollout.task),
        "task_repeat": rollout.index,
        "agent": rollout.environment,
        "model": _word(rollout.meta.get("model")),
        "model_options": field(rollout, "sampling"),
        "score": text(reward) if reward is not None and math.isfinite(reward) else None,
        "score_explanation": "\n".join(rollout.reward_texts.values()) or None,
        "message_count": len(made),
        "total_time": _seconds(rollout),
        "total_tokens": tokens or None,
        "error": error.text or error.type if error and error.kind != "limit" else None,
        "limit": error.type or "unknown" if error and error.kind == "limit" else None,
        "messages": text(made),
        **{name: getattr(rollout, name) for name in METADATA if name not in _JSON},
        **{name: field(rollout, name) for name in _JSON},
    }
    return TableRow("transcripts", values, _SEVERAL if len(ways) > 1 else None)


def _message(message: Message, id: str) -> dict[str, Any]:
    role = _ROLES.get(message.role, "user")
    body: dict[str, Any] = {"id": id, "role": role, "content": _content(message.content)}
    about = {"name": message.name} if message.name is not None and role != "tool" else {}
    if role != message.role:
        about["role"] = message.role
    if message.meta:
        about["meta"] = text(message.meta) or ""
    if about:
        body["metadata"] = about
    if role == "assistant":
        if found := tool_calls(message):
            body["tool_calls"] = [_call(call, f"{id}-{n}") for n, call in enumerate(found)]
        if by_policy(message):
            body["source"] = "generate"
    if role == "tool":
        body |= {"tool_call_id": message.tool_call_id, "function": message.name}
    return body


def _content(content: str | list[Part] | None) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return [_part(part) for part in content if part.call is None]


def _part(part: Part) -> dict[str, Any]:
    if part.type == "reasoning" and part.text is not None:
        return {"type": "reasoning", "reasoning": part.text}
    if part.image is not None:
        return {"type": "image", "image": part.image}
    if part.text is not None:
        return {"type": "text", "text": part.text}
    return {"type": "data", "data": {"type": part.type, "data": part.data}}


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    given = arguments(call.arguments)
    body = {"id": call.id or id, "function": call.name or "", "type": "function"}
    if isinstance(given, dict):
        return {**body, "arguments": given}
    said = "" if given is None else f"not an object: {given!r:.200}"
    raw = {} if given is None else {"raw": given}
    return {**body, "arguments": raw, "parse_error": said or None}


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(rollout: Rollout) -> float | None:
    if rollout.start is None or rollout.end is None:
        return None
    return rollout.end - rollout.start


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None
