"""tau-bench results: one JSON list of trajectories, `task_id` × `trial`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Rollout
from ..model.chat import from_chat
from ..model.problem import Problem
from . import _files


def recognise(path: Path) -> bool:
    if not path.is_file() or _files.plain_suffix(path) != ".json":
        return False
    body = _files.first(path)
    return isinstance(body, dict) and {"task_id", "traj", "reward", "trial"} <= body.keys()


def read(path: Path) -> Iterator[Rollout | Problem]:
    number = -1
    try:
        for number, body in enumerate(_files.items(path)):
            try:
                yield convert(body)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                yield Problem(path, None, f"item {number} is not a tau-bench trajectory: {error!r}")
    except (OSError, ValueError, EOFError) as error:
        yield Problem(path, None, f"cannot be read after item {number}: {error}")


def convert(body: Mapping[str, Any]) -> Rollout:
    """One trajectory. The user is a model, too: only the assistant's words are the policy's."""
    messages = [from_chat(message) for message in body.get("traj") or ()]
    for message in messages:
        if message.role == "assistant":
            message.sampled = True
    info = body.get("info") or {}
    task = info.get("task") or {}
    return Rollout(
        messages=messages,
        task=body["task_id"],
        index=body.get("trial"),
        reward=None if body.get("reward") is None else float(body["reward"]),
        rewards=_parts((info.get("reward_info") or {}).get("info") or {}),
        reference=task.get("actions"),
        environment="tau-bench",
        meta={"info": info},
    )


def _parts(info: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in info.items()
        if name.startswith("r_") and isinstance(value, (int, float))
    }
