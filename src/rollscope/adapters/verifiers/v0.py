"""What verifiers v0 writes: `results.jsonl`, one rollout a line, with `metadata.json` beside it.

verifiers has written it until 0.3.0, below `outputs/evals/<environment>--<model>/`. The rollouts of
an example are a group; a row does not say which place it has in it. A row without `metrics` has its
scores beside the reward.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...model import Error, Message, Rollout
from ...model.chat import from_chat
from ...model.problem import Problem
from .._lines import first_record, records
from .._repeats import Repeats

_KNOWN = {
    "example_id", "prompt", "completion", "answer", "info", "reward", "error", "error_chain",
    "long_error_chain", "timing", "task", "is_completed", "is_truncated", "stop_condition",
    "metrics", "tool_defs", "token_usage", "trajectory",
}  # fmt: skip
_COUNTS = ("num_turns", "total_tool_calls", "num_steps")
"""Numbers among the metrics that are no scores."""


def results(path: Path) -> Path | None:
    """The file of rollouts that is meant by this file or directory, if it is one of v0's."""
    file = path / "results.jsonl" if path.is_dir() else path
    with contextlib.suppress(Exception):
        first = first_record(file) if file.is_file() else {}
        if {"example_id", "prompt", "completion", "reward"} <= first.keys():
            return file
    return None


def beside(file: Path) -> list[Path]:
    """The file, and what is read with it."""
    settings = file.with_name("metadata.json")
    return [file, settings] if settings.is_file() else [file]


def read(file: Path) -> Iterator[Rollout | Problem]:
    settings: dict[str, Any] = {}
    for found in beside(file)[1:]:
        try:
            settings = dict(json.loads(found.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            yield Problem(found, None, f"not as verifiers writes it: {error}")
    repeats = Repeats()
    for record in records(file):
        if isinstance(record, Problem):
            yield record
            continue
        try:
            rollout = _rollout(record, settings)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            yield Problem(file, None, f"no rollout of verifiers: {error!r}")
            continue
        rollout.group = f"{file.parent.name}/{rollout.task}"
        rollout.key = repeats.unique(rollout.group)
        yield rollout


def _rollout(row: Mapping[str, Any], settings: Mapping[str, Any]) -> Rollout:
    environment = settings.get("env_id")
    metrics = row.get("metrics")
    if not isinstance(metrics, Mapping):
        metrics = {k: v for k, v in row.items() if k not in _KNOWN and not k.endswith("_ms")}
    scores = {k: float(v) for k, v in metrics.items() if type(v) in (int, float)}
    counts = {k: scores.pop(k) for k in _COUNTS if k in scores}
    error = row.get("error")
    completed = row.get("is_completed", True)
    meta = {
        "model": settings.get("model"),
        "metrics": counts,
        **{k: row.get(k) for k in ("info", "timing", "token_usage", "tool_defs")},
        **{k: v for k, v in row.items() if k not in _KNOWN and k not in metrics},
    }
    return Rollout(
        task=row["example_id"],
        dataset=row.get("task") or environment,
        environment=environment,
        split="eval",
        messages=[*_said(row["prompt"], False), *_said(row["completion"], True)],
        reward=None if row["reward"] is None else float(row["reward"]),
        rewards=scores,
        reference=row.get("answer") or None,
        stop_reason=row.get("stop_condition"),
        truncated=row.get("is_truncated"),
        error=None if error is None else _error(error),
        fate="failed" if error is not None else "scored" if completed else "generated",
        sampling=dict(settings.get("sampling_args") or {}),
        meta={k: v for k, v in meta.items() if v not in (None, {}, [])},
    )


def _said(given: Any, is_answer: bool) -> list[Message]:
    """Messages, or a text without roles."""
    role = "assistant" if is_answer else "unknown"
    chat = [{"role": role, "content": given}] if isinstance(given, str) else given or []
    messages = [from_chat(one) for one in chat]
    for message in messages:
        message.sampled = is_answer and message.role == "assistant"
    return messages


def _error(given: Any) -> Error:
    if not isinstance(given, Mapping):
        return Error(text=str(given))
    text = given.get("error_chain_repr") or given.get("message") or given.get("error")
    return Error(type=given.get("error"), text=str(text))
