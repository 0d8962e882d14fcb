"""ATIF, the trajectory format of Harbor agents: `{"schema_version": "ATIF-...", "steps": [...]}`.

Steps come from `system`, `user` or `agent`; an agent's step may hold reasoning, tool calls,
what the environment answered, and metrics with token ids and logprobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from ..model import Message, Rollout, Tokens
from ..model.chat import from_chat, parsed, to_chat, tool_call
from ..model.conversation import by_policy, text
from ..model.problem import Problem
from ..model.schema import FIELDS, scalars
from . import _files
from ._body import decode
from ._encode import line
from ._export import LineCount, line_each
from ._files import seconds

VERSION = "ATIF-v1.4"
_ROLES = {"agent": "assistant", "user": "user", "system": "system"}
_KEYS = ("schema_version", "session_id", "steps", "agent", "extra")
_OURS = {"name": "policy", "version": "unknown"}
"""What we write in the place of an agent that has no name."""
_FIELDS = {column.name for column in FIELDS if column.is_scalar} | {"rewards"}
"""What `extra` may hold of a rollout."""
_STEP_KEYS = {
    "step_id", "timestamp", "source", "message", "reasoning_content", "tool_calls",
    "observation", "metrics", "model_name", "extra",
}  # fmt: skip


def recognise(path: Path) -> bool:
    version = _files.first_object(path, ".json", ".jsonl").get("schema_version", "")
    return str(version).startswith("ATIF")


def read(path: Path) -> Iterator[Rollout | Problem]:
    return _files.rollouts(path, "an ATIF trajectory", lambda found: [convert(found.value)])


def convert(body: Mapping[str, Any]) -> Rollout:
    """One trajectory."""
    agent = body.get("agent") or {}
    messages = [m for step in body["steps"] for m in _messages(step, agent)]
    extra = body.get("extra") or {}
    about = {} if agent == _OURS else {"agent": dict(agent)}
    rest = {k: v for k, v in body.items() if k not in _KEYS and v is not None}
    rest |= about | {k: v for k, v in extra.items() if k not in _FIELDS}
    fields = {k: v for k, v in extra.items() if k in _FIELDS}
    rollout = decode({"key": body.get("session_id"), **fields, "meta": rest})
    rollout.environment = agent.get("name") if about else None
    rollout.messages = messages
    return rollout


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> LineCount:
    """One trajectory per line."""
    return line_each(rollouts, out, lambda rollout: line(trajectory(rollout)))


def trajectory(rollout: Rollout) -> dict[str, Any]:
    """A rollout as ATIF. Tool answers go into the step that asked for them."""
    steps: list[dict[str, Any]] = []
    for message in rollout.messages:
        if message.role == "tool" and steps:
            result = {"source_call_id": message.tool_call_id, "content": text(message)}
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            continue
        steps.append({"step_id": len(steps) + 1, **_step(message)})
    extra = {**scalars(rollout, without=("id", "environment")), "rewards": rollout.rewards}
    return {
        "schema_version": VERSION,
        "session_id": rollout.id or rollout.key or "",
        "agent": {**_OURS, "name": rollout.environment} if rollout.environment else _OURS,
        "steps": steps,
        "extra": {k: v for k, v in extra.items() if v not in (None, {})},
    }


# -- in --------------------------------------------------------------------------------


def _messages(step: Mapping[str, Any], agent: Mapping[str, Any]) -> Iterator[Message]:
    extra = dict(step.get("extra") or {})
    role = _ROLES.get(str(step.get("source")), str(step.get("source") or "unknown"))
    role = str(extra.pop("role", role))
    chat = {
        "role": role,
        "content": step.get("message"),
        "reasoning_content": step.get("reasoning_content"),
    }
    message = from_chat({k: v for k, v in chat.items() if v is not None or k == "content"})
    message.tool_calls = [
        tool_call(
            {
                "id": call.get("tool_call_id"),
                "name": call.get("function_name"),
                "arguments": call.get("arguments"),
            }
        )
        for call in step.get("tool_calls") or ()
    ]
    message.start = seconds(step.get("timestamp"))
    if role == "assistant":
        message.sampled = True
        message.name = agent.get("name")
        message.tokens = _tokens(step.get("metrics") or {})
    message.meta = {
        **{k: v for k, v in step.items() if k not in _STEP_KEYS},
        **extra,
        **{k: step[k] for k in ("model_name", "metrics") if step.get(k)},
    }
    yield message
    for result in (step.get("observation") or {}).get("results") or ():
        answer = from_chat({"role": "tool", "content": result.get("content")})
        answer.tool_call_id = result.get("source_call_id")
        answer.meta = {k: v for k, v in result.items() if k not in ("source_call_id", "content")}
        yield answer


def _tokens(metrics: Mapping[str, Any]) -> Tokens | None:
    ids = metrics.get("completion_token_ids")
    logprobs = metrics.get("logprobs")
    if not ids:
        return None
    return Tokens(ids, logprob=logprobs if logprobs and len(logprobs) == len(ids) else None)


# -- out -------------------------------------------------------------------------------


def _step(message: Message) -> dict[str, Any]:
    chat = to_chat(message)
    source = {"assistant": "agent", "system": "system"}.get(message.role, "user")
    step: dict[str, Any] = {"source": source, "message": chat["content"] or ""}
    if message.role != _ROLES[source]:  # a role that ATIF does not know
        step["extra"] = {"role": message.role}
    if message.start is not None:
        step["timestamp"] = datetime.fromtimestamp(message.start, UTC).isoformat()
    if "reasoning_content" in chat:
        step["reasoning_content"] = chat["reasoning_content"]
    if message.tool_calls:
        step["tool_calls"] = [
            {"tool_call_id": c.id, "function_name": c.name, "arguments": _object(c.arguments)}
            for c in message.tool_calls
        ]
    if message.tokens is not None and by_policy(message) and message.tokens.ids is not None:
        clean = message.tokens.normalised()
        assert clean is not None
        step["metrics"] = {"completion_token_ids": clean.ids}
        if clean.logprob is not None and None not in clean.logprob:
            step["metrics"]["logprobs"] = clean.logprob
    return step


def _object(arguments: Any) -> Any:
    """ATIF wants an object. If the model wrote anything else, it is kept as text inside one."""
    found = parsed(arguments)
    if isinstance(found, dict):
        return found
    is_text = isinstance(found, str) and found == arguments
    return {"raw" if is_text else "value": found}
