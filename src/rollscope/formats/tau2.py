"""tau2-bench results: conversations of an agent and a simulated user, who may both call tools.

Read from the source of sierra-research/tau2-bench, commit a2c0247:
`src/tau2/data_model/simulation.py` and `message.py`. `Results.save` writes one `results.json`, or,
for long and spoken conversations, `results.json` and a file each in `simulations/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Error, Message, Part, Rollout
from ..model.chat import tool_call
from ..model.problem import Problem
from . import _files
from ._files import ODD, ODD_OR_TORN, number, seconds, unread

_ONE = {"task_id", "termination_reason", "duration"}
"""Keys of one simulation."""
_USED = {
    "id", "task_id", "start_time", "end_time", "termination_reason", "reward_info", "messages",
    "ticks", "trial",
}  # fmt: skip
_OF_MESSAGE = {"role", "content", "tool_calls", "timestamp", "is_audio", "generation_time_seconds"}
_ERRORS = {
    "agent_error": "policy", "user_error": "environment", "infrastructure_error": "infrastructure",
    "timeout": "limit", "max_steps": "limit", "context_window_exceeded": "limit",
    "too_many_errors": "limit", "unexpected_error": None,
}  # fmt: skip
_REPEATED = ("policy", "global_simulation_guidelines", "tool_defs")
"""Long texts of the header that are the same for all simulations of a domain."""


def recognise(path: Path) -> bool:
    if path.is_dir():
        return (path / "simulations").is_dir() and recognise(path / "results.json")
    keys = _files.first_object(path, ".json").keys()
    return keys >= {"info", "tasks"} or keys >= _ONE


def files(folder: Path) -> list[Path]:
    """`results.json` and the simulations that lie beside it."""
    return [folder / "results.json", *_simulations(folder)]


def read(path: Path) -> Iterator[Rollout | Problem]:
    beside = _simulations(path if path.is_dir() else path.parent)
    file = path / "results.json" if path.is_dir() else path
    label = _files.label(file)
    try:
        first = _files.first(file)
        if isinstance(first, dict) and first.keys() >= _ONE:  # one simulation alone
            yield convert(_files.whole(file), {}, label)
            return
        (header,) = _files.around(file, ["simulations"])
        found = list(header.get("tasks") or ())
        header["tasks"] = {str(task.get("id")): task for task in found}
        for _, body in _files.entries(file, ["simulations"]):
            yield _made(file, body, header, label)
        for one in beside:
            yield _made(one, _files.whole(one), header, label)
    except ODD_OR_TORN as error:
        yield Problem(file, None, f"not as tau2-bench writes it, or torn: {error!r}")


def _simulations(folder: Path) -> list[Path]:
    return sorted((folder / "simulations").glob("*.json"))


def _made(file: Path, body: Any, header: Mapping[str, Any], label: str) -> Rollout | Problem:
    try:
        return convert(body, header, label)
    except ODD as error:
        return Problem(file, None, f"not a simulation of tau2-bench: {error!r}")


def convert(body: Mapping[str, Any], header: Mapping[str, Any], label: str) -> Rollout:
    """One simulation. The user is a model, too: only the assistant's words are the policy's."""
    info = header.get("info") or {}
    agent = info.get("agent_info") or {}
    domain = (info.get("environment_info") or {}).get("domain_name")
    said = body.get("messages")
    messages = list(_spoken(body["ticks"])) if said is None else [_message(m) for m in said]
    graded = body.get("reward_info") or {}
    reason = body.get("termination_reason")
    task = (header.get("tasks") or {}).get(str(body["task_id"])) or {}
    parts = graded.get("reward_breakdown") or {}
    return Rollout(
        key=body.get("id"),
        messages=messages,
        split="eval",
        dataset=domain,
        task=body["task_id"],
        group=f"{label}/{body['task_id']}",
        index=body.get("trial"),
        environment="tau2-bench",
        reward=number(graded.get("reward")),
        rewards={name: float(value) for name, value in parts.items() if value is not None},
        reference=task.get("evaluation_criteria"),
        stop_reason=reason,
        truncated=True if reason in ("max_steps", "timeout") else None,
        error=Error(kind=_ERRORS[reason], type=reason) if reason in _ERRORS else None,
        sampling=agent.get("llm_args") or {},
        start=seconds(body.get("start_time")),
        end=seconds(body.get("end_time")),
        meta={
            **unread(body, _USED),
            **_named("grading", graded, ("reward", "reward_breakdown")),
            **_named("task", task, ("id", "evaluation_criteria")),
            **_named("info", info, ()),
            "model": agent.get("llm"),
        },
    )


def _message(body: Mapping[str, Any]) -> Message:
    role = str(body["role"])
    calls = body.get("tool_calls") or ()
    rest = unread(body, _OF_MESSAGE)
    answered = rest.pop("id", None) if role == "tool" else None
    content: Any = body.get("content")
    if content and body.get("is_audio"):
        content = [Part(type="audio", data={"base64": content})]
    askers = {str(c["requestor"]) for c in calls if isinstance(c, Mapping) and "requestor" in c}
    start = seconds(body.get("timestamp"))
    return Message(
        role=role,
        content=content,
        tool_calls=[tool_call(call) for call in calls],
        tool_call_id=answered,
        sampled=role == "assistant",
        start=start,
        meta=rest | ({"requestors": sorted(askers)} if askers - {role} else {}),
    )


def _spoken(ticks: list[Mapping[str, Any]]) -> Iterator[Message]:
    """A spoken conversation. Both may speak at once, a few words each tick; what one of them says
    without the other, or a tool, coming in between is one message."""
    open_one: Message | None = None
    for tick in ticks:
        for role, who in (("assistant", "agent"), ("user", "user")):
            chunk, calls = tick.get(f"{who}_chunk") or {}, tick.get(f"{who}_tool_calls") or []
            body = {"timestamp": tick.get("timestamp"), **chunk, "role": role, "tool_calls": calls}
            results = tick.get(f"{who}_tool_results") or ()
            if not (chunk.get("content") or calls or results):
                continue
            made = _message(body)
            made.meta = {"tick": tick.get("tick_id")}
            if open_one is not None and _goes_on(open_one, made):
                open_one.content = f"{open_one.content}{made.content}"
            else:
                if open_one is not None:
                    yield open_one
                open_one = made
            if results:
                yield open_one
                open_one = None
                yield from map(_message, results)
    if open_one is not None:
        yield open_one


def _goes_on(before: Message, after: Message) -> bool:
    is_text = isinstance(before.content, str) and isinstance(after.content, str)
    return is_text and before.role == after.role and not (before.tool_calls or after.tool_calls)


def _named(name: str, part: Mapping[str, Any], used: tuple[str, ...]) -> dict[str, Any]:
    """The rest of a part of the file, without what is repeated in every one."""
    short = {
        k: {n: x for n, x in v.items() if n not in _REPEATED and x is not None}
        if isinstance(v, Mapping)
        else v
        for k, v in unread(part, (*used, *_REPEATED)).items()
    }
    return {name: short} if short else {}
