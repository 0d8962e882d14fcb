"""ROLL's `rollout_dump_data.step_*.jsonl`, in its `rollout_dump_dir`.

Read from the source of alibaba/ROLL, commit 8eb27cc: `roll/pipeline/rlvr/utils.py`
(`dump_rollout_to_specific_path`) and `roll/pipeline/agentic/utils.py`
(`dump_rollout_trajectories`) with `env_manager/agent_native_env_manager.py` and
`proxy_env_manager.py`.

A line is the batch of a step: an object with a list for every column, one value a rollout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ..model import Error, Message, Rollout, prompt_task
from ..model.chat import from_chat, parsed
from ..model.conversation import text
from ..model.problem import Problem
from . import _files

_USED = {
    "global_step", "id", "prompt", "messages", "ground_truth", "responses", "scores",
    "sampling_params", "domain",
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens", "repetition_penalty")
_SPLITS = {"train": "train", "val": "eval"}
_SAVED = "%Y%m%d_%H%M%S_%f"


def recognise(path: Path) -> bool:
    body = _files.first_object(path, ".jsonl")
    is_batch = isinstance(body.get("global_step"), list)
    return is_batch and ({"responses", "scores"} <= body.keys() or "trajectory_data" in body)


def read(path: Path) -> Iterator[Rollout | Problem]:
    return _files.rollouts(path, "a step of ROLL", lambda found: _step(path, found))


def _step(path: Path, found: _files.Entry) -> Iterator[Rollout | Problem]:
    sizes = {name: len(values) for name, values in found.value.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"its columns have different lengths: {sizes}")
    seen: dict[str, int] = {}
    for place, values in enumerate(zip(*found.value.values(), strict=True)):
        row = dict(zip(found.value, values, strict=True))
        try:
            rollout = _trajectory(row) if "trajectory_data" in row else _answer(row)
        except _files.ODD as error:
            yield found.problem(path, f"rollout {place} is not ROLL's: {error!r}")
            continue
        if rollout.index is None and rollout.group is not None:
            rollout.index = seen.get(rollout.group, 0)
            seen[rollout.group] = rollout.index + 1
        yield rollout


def _answer(row: Mapping[str, Any]) -> Rollout:
    """A row of the RLVR pipeline: one prompt, one answer."""
    step, asked = row["global_step"], parsed(row.get("messages"))
    if isinstance(asked, list):
        messages = [from_chat(message) for message in asked]
    else:  # what the template has made of it
        messages = [Message(role="unknown", content=row.get("prompt"))]
    for message in messages:
        message.sampled = False
    task = row.get("id")
    if task is None:
        task = prompt_task("\n".join(map(text, messages)))
    settings = parsed(row.get("sampling_params"))
    settings = settings if isinstance(settings, dict) else {}
    generated = settings.get("generation_config") or settings
    return Rollout(
        step=step,
        split="train",
        task=task,
        dataset=row.get("tag") or row.get("source"),
        group=f"{step}/{row.get('tag')}/{task}",
        environment=row.get("domain"),
        messages=[*messages, Message(role="assistant", content=row["responses"], sampled=True)],
        reward=_files.number(row["scores"]),
        reference=row.get("ground_truth"),
        fate="scored",
        sampling={k: generated[k] for k in _SAMPLING if generated.get(k) is not None},
        meta={
            **{k: v for k, v in row.items() if k not in _USED and v is not None},
            **({"sampling_params": settings} if settings else {}),
        },
    )


def _trajectory(row: Mapping[str, Any]) -> Rollout:
    """A row of the agentic pipeline: a trajectory of many turns."""
    data = parsed(row["trajectory_data"])
    said = parsed(row.get("messages")) or data.get("messages") or []
    place, graded = data.get("env_info") or {}, data.get("reward_info") or {}
    failed, lengths = data.get("failure_info") or {}, data.get("length_info") or {}
    task = None if place.get("seed") is None else f"{place.get('tag')}/{place['seed']}"
    group = "/".join(str(place.get(k)) for k in ("tag", "group_id", "episode_id", "seed"))
    if isinstance(said, list) and said and isinstance(said[0], list):
        messages = list(_contexts(said))
    else:
        messages = [_message(message) for message in said]
    answers, steps = [m for m in messages if m.sampled], graded.get("step_rewards") or ()
    if len(steps) == len(answers):
        for message, given in zip(answers, steps, strict=True):
            message.reward = _files.number(given)
    why = failed.get("error_messages") or failed.get("failure_mode")
    return Rollout(
        key=data.get("trajectory_id"),
        step=row["global_step"],
        split=_SPLITS.get(str(place.get("mode")), place.get("mode")),
        task=task,
        group=group if place else None,
        environment=place.get("tag"),
        messages=messages,
        reward=_files.number(graded.get("episode_reward")),
        stop_reason=failed.get("stop_reason") or data.get("finish_reason"),
        truncated=lengths.get("truncated"),
        error=Error(type=failed.get("failure_mode") or None, text=str(why))
        if failed.get("has_failure")
        else None,
        fate="scored",
        end=_saved(data.get("timestamp")),
        meta={
            **{k: v for k, v in data.items() if k not in ("messages", "trajectory_id")},
            **{k: row[k] for k in ("exp_name",) if row.get(k)},
            **({"tools": parsed(row["tools"])} if row.get("tools") else {}),
        },
    )


def _contexts(contexts: list[list[Any]]) -> Iterator[Message]:
    """Several contexts of one trajectory: each that does not go on where the one before ended
    begins a conversation of its own."""
    before: list[Any] = []
    for context in contexts:
        goes_on = context[: len(before)] == before
        for number, message in enumerate(context[len(before) :] if goes_on else context):
            made = _message(message)
            if number == 0 and before and not goes_on:
                made.parent = -1
            yield made
        before = context


def _message(body: Any) -> Message:
    message = from_chat(body)
    message.sampled = message.role == "assistant"
    return message


def _saved(stamp: Any) -> float | None:
    try:
        return datetime.strptime(str(stamp), _SAVED).timestamp()
    except ValueError:
        return None
