"""tau-bench results: one JSON list of trajectories, `task_id` × `trial`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Rollout
from ..model.chat import from_chat
from ..model.problem import Problem
from . import _files

_KEYS = {"task_id", "traj", "reward", "trial"}


def recognise(path: Path) -> bool:
    return _files.first_object(path, ".json").keys() >= _KEYS


def read(path: Path) -> Iterator[Rollout | Problem]:
    label = _files.label(path)
    return _files.rollouts(
        path, "a tau-bench trajectory", lambda found: [convert(found.value, label)]
    )


def convert(body: Mapping[str, Any], label: str) -> Rollout:
    """One trajectory. The user is a model, too: only the assistant's words are the policy's.

    The trials of one file are siblings; those of another file are of another model.
    """
    messages = [from_chat(message) for message in body["traj"] or ()]
    for message in messages:
        if message.role == "assistant":
            message.sampled = True
    info = body.get("info") or {}
    task = info.get("task") or {}
    return Rollout(
        messages=messages,
        task=body["task_id"],
        group=f"{label}/{body['task_id']}",
        index=body.get("trial"),
        reward=_files.number(body.get("reward")),
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
