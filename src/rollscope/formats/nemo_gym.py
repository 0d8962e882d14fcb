"""NeMo Gym rollouts: JSON lines of Responses-API requests and responses with a reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Error, Rollout, Span, prompt_task
from ..model.problem import Problem
from . import _files
from ._responses import from_items

_USED = {
    "responses_create_params", "response", "reward", "_ng_task_index", "_ng_rollout_index",
    "expected_answer", "ng_trajectory",
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "max_output_tokens")
_ASKED = ("input", "instructions", "tools", *_SAMPLING)
_ANSWERED = ("output", "usage", "model", "created_at", "incomplete_details", "error")


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
    trajectory = body.get("ng_trajectory")
    known = trajectory if isinstance(trajectory, Mapping) else {}
    task = body.get("_ng_task_index")
    usage = answer.get("usage")
    incomplete = answer.get("incomplete_details") or {}
    return Rollout(
        messages=messages,
        spans=[*_calls(known), *_not_captured(known)],
        error=_error(answer.get("error")),
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
            **_rest("ng_trajectory", known, ("model_calls",)),
            **_rest("request", asked, _ASKED),
            **_rest("response", answer, _ANSWERED),
        },
    )


def _calls(trajectory: Mapping[str, Any]) -> Iterator[Span]:
    """The calls of models that Gym has captured. Their requests hold the conversation once more."""
    for call in trajectory.get("model_calls") or ():
        about = call.get("response_metadata") or {}
        stats = call.get("token_stats") or {}
        usage = {k: stats[k] for k in ("prompt_tokens", "completion_tokens") if k in stats}
        model = about.get("model_ref") or {}
        yield Span(
            name="model",
            id=call.get("model_call_id") or about.get("response_id"),
            outputs={"usage": usage or None, "finish_reason": about.get("finish_reason")},
            error=_failed(about),
            start=call.get("started_at"),
            end=call.get("completed_at"),
            meta={k: v for k, v in (("model", model.get("name")), ("told", about)) if v},
        )


def _failed(about: Mapping[str, Any]) -> Error | None:
    status, category = about.get("status_code"), about.get("error_category")
    if not category and not (isinstance(status, int) and status >= 400):
        if about.get("response_status") not in ("failed", "error", "cancelled"):
            return None
        category = about["response_status"]
    text = f"HTTP {status}" if status is not None else None
    return Error(kind="infrastructure", type=category and str(category), text=text)


def _not_captured(trajectory: Mapping[str, Any]) -> Iterator[Span]:
    """Calls that turns refer to, and that are not among those that were captured."""
    calls = trajectory.get("model_calls") or ()
    ids = {call.get("model_call_id") for call in calls}
    ids |= {(call.get("response_metadata") or {}).get("response_id") for call in calls}
    named = [ref for turn in trajectory.get("turns") or () for ref in turn.get("model_calls") or ()]
    for id in dict.fromkeys(ref.get("model_call_id") or ref.get("response_id") for ref in named):
        if id is not None and id not in ids:
            text = "a turn refers to this call, but it was not captured"
            yield Span(name="model", id=id, error=Error(type="NotCaptured", text=text))


def _error(said: Any) -> Error | None:
    """Why the last response failed, as the Responses API tells it."""
    if not isinstance(said, Mapping):
        return Error(text=str(said)) if said else None
    return Error(type=said.get("code"), text=said.get("message"))


def _rest(name: str, part: Mapping[str, Any], used: tuple[str, ...]) -> dict[str, Any]:
    """What else the API was asked or answered, under one key of `meta`."""
    rest = _files.unread(part, used)
    return {name: rest} if rest else {}
