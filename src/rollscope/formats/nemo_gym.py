"""NeMo Gym rollouts: JSON lines of Responses-API requests and responses with a reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Rollout, prompt_task
from ..model.problem import Problem
from . import _files
from ._responses import from_items

_USED = {
    "responses_create_params", "response", "reward", "_ng_task_index", "_ng_rollout_index",
    "expected_answer",
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "max_output_tokens")
_ASKED = ("input", "instructions", "tools", *_SAMPLING)
_ANSWERED = ("output", "usage", "model", "created_at", "incomplete_details")


NUMBERS_TASKS = True
"""Each file numbers its tasks from 0."""


def recognise(path: Path) -> bool:
    return _files.first_object(path, ".jsonl").keys() >= {"responses_create_params", "response"}


def read(path: Path) -> Iterator[Rollout | Problem]:
    return _files.rollouts(path, "a NeMo Gym rollout", lambda found: [convert(found.value)])


def convert(body: Mapping[str, Any]) -> Rollout:
    """One line as a rollout. Numbers beside the reward become its parts."""
    asked, answer = body["responses_create_params"], body["response"]
    given = asked.get("input")
    prompt = from_items([given] if isinstance(given, str) else given or ())
    if asked.get("instructions"):
        prompt = [*from_items([{"role": "system", "content": asked["instructions"]}]), *prompt]
    messages = [*prompt, *from_items(answer.get("output") or (), sampled=True)]
    agent = body.get("agent_ref") or {}
    task = body.get("_ng_task_index")
    usage = answer.get("usage")
    incomplete = answer.get("incomplete_details") or {}
    return Rollout(
        messages=messages,
        task=task if task is not None else prompt_task(str(given)),
        index=body.get("_ng_rollout_index"),
        reward=_files.number(body.get("reward")),
        reference=body.get("expected_answer"),
        environment=agent.get("name") if isinstance(agent, Mapping) else str(agent),
        stop_reason=incomplete.get("reason") or answer.get("status"),
        truncated=True if incomplete.get("reason") == "max_output_tokens" else None,
        start=answer.get("created_at"),
        sampling={k: asked[k] for k in _SAMPLING if asked.get(k) is not None},
        meta={
            **{k: v for k, v in (("tools", asked.get("tools")), ("usage", usage)) if v},
            **({"model": answer["model"]} if answer.get("model") else {}),
            **{k: v for k, v in body.items() if k not in _USED and v is not None},
            **_rest("request", asked, _ASKED),
            **_rest("response", answer, _ANSWERED),
        },
    )


def _rest(name: str, part: Mapping[str, Any], used: tuple[str, ...]) -> dict[str, Any]:
    """What else the API was asked or answered, under one key of `meta`."""
    rest = _files.unread(part, used)
    return {name: rest} if rest else {}
