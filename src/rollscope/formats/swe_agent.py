"""SWE-agent trajectories (`.traj`): three generations of one JSON format.

`history` is the conversation. Where it is missing, the conversation is rebuilt from the
steps of `trajectory`. There is no reward: success is `exit_status` and a patch, in `meta`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Message, Rollout, Span
from ..model.chat import from_chat, parsed
from ..model.problem import Problem
from . import _files


def recognise(path: Path) -> bool:
    return path.is_file() and _files.plain_suffix(path) == ".traj"


def read(path: Path) -> Iterator[Rollout | Problem]:
    try:
        body = _files.whole(path)
        if not {"trajectory", "history"} & body.keys():
            raise ValueError("it has neither a trajectory nor a history")
        # Attempts at one instance have the same file name in different folders.
        name = f"{path.absolute().parent.name}/{path.name}"
        yield convert(body, task=_task(path), name=name)
    except _files.ODD_OR_TORN as error:
        yield Problem(path, None, f"not a SWE-agent trajectory: {error!r}")


def convert(body: Mapping[str, Any], *, task: str, name: str) -> Rollout:
    """One file. `task` is the instance that it is about, `name` what tells attempts apart."""
    steps = body.get("trajectory") or []
    history = body.get("history") or []
    messages = [_message(m) for m in history] or _rebuilt(steps)
    _add_states(messages, steps)
    info = body.get("info") or {}
    return Rollout(
        key=name,
        task=task,
        messages=messages,
        spans=list(_spans(steps, messages)),
        stop_reason=info.get("exit_status"),
        environment=body.get("environment"),
        meta={
            **{k: v for k, v in body.items() if k not in ("trajectory", "history", "environment")},
            "file": name,
        },
    )


def _message(body: Mapping[str, Any]) -> Message:
    answers = body.get("tool_call_ids") or ()
    known = ("tool_call_ids", "agent")
    message = from_chat({k: v for k, v in body.items() if k not in known})
    message.name = body.get("agent") or message.name
    message.tool_call_id = str(answers[0]) if answers else message.tool_call_id
    if len(answers) > 1:
        message.meta["tool_call_ids"] = list(answers)
    if message.role == "assistant" and not body.get("is_demo"):
        message.sampled = True
    return message


def _rebuilt(steps: list[Mapping[str, Any]]) -> list[Message]:
    messages = []
    for step in steps:
        said = step.get("response") or step.get("thought") or ""
        messages.append(Message(role="assistant", content=said, sampled=True))
        messages.append(Message(role="user", content=step.get("observation")))
    return messages


def _add_states(messages: list[Message], steps: list[Mapping[str, Any]]) -> None:
    """The environment's state after each answer, where answers and steps are equally many."""
    said = [m for m in messages if m.sampled]
    if len(said) != len(steps):
        return
    for message, step in zip(said, steps, strict=True):
        message.state = parsed(step.get("state"))


def _spans(steps: list[Mapping[str, Any]], messages: list[Message]) -> Iterator[Span]:
    """Each step's action, with anything the step says beside it that no message has."""
    said = json.dumps([[m.content, m.state] for m in messages], default=str)
    for number, step in enumerate(steps):
        meta = {
            name: value
            for name, value in step.items()
            if name not in ("action", "observation", "messages", "query")
            and value not in (None, "", [], {})
            and not _is_said(value, said)
        }
        yield Span(
            name="action",
            id=str(number),
            inputs=step.get("action"),
            outputs=step.get("observation"),
            meta=meta,
        )


def _is_said(value: Any, said: str) -> bool:
    if not isinstance(value, str):
        return False
    with contextlib.suppress(ValueError):  # a state, which is kept as the JSON that it is
        if json.dumps(json.loads(value))[1:-1] in said:
            return True
    return json.dumps(value)[1:-1] in said


def _task(file: Path) -> str:
    """The instance that the file is named after."""
    return _files.plain_name(file).removesuffix(".traj")
