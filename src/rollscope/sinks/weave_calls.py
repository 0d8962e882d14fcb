"""A rollout as Weave sees one: a tree of completed calls. Plain data, without Weave.

Written as Weave's own integration for OpenAI writes calls, because that is what its chat view
reads: `inputs.messages`, `output.choices`, `summary.usage`. Every call carries verl's attributes,
so that filters by step or sample find the calls inside a rollout, too.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict

from ..model import Rollout
from ..model.conversation import by_policy
from ..model.schema import FIELDS, SCALARS
from . import _chat as chat
from ._plain import cut, known, plain, text, without_tokens
from .calls import ROOT, TracedCall, calls, verl_attributes

MOST_BYTES = 3_000_000
"""Weave replaces a call of more than 3.5 MiB by a stub. Longer ones have their texts cut."""

_KINDS = {"agent": "agent", "chat": "llm", "tool": "tool"}
_OPS = {"agent": "rollout", "chat": "chat", "tool": "tool"}
_VERL = ("step", "task", "index", "run")
"""Scalars that have verl's names."""
_LATE = [c.name for c in FIELDS if c.late and (c.is_scalar or c.type.startswith("MAP"))]
_FACTS = [name for name in _LATE if name not in (*_VERL, "group", "end")]
_ABOUT = [
    name
    for name in SCALARS
    if name not in (*_VERL, *_FACTS) or name in ("trained_step", "policy_version")
]


def call_id(rollout: Rollout | str, call: str = ROOT) -> str:
    """The same each time, so that sending again replaces and does not repeat."""
    id = rollout if isinstance(rollout, str) else rollout.id
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"rollscope\0{id}\0{call}"))


def op_name(call: TracedCall) -> str:
    """The kind of call, or the name of the recorded span: there are few of both. The name by which
    the model called a tool is shown, but is not the name of the operation."""
    return text(call.span.name) if call.span is not None else _OPS[call.kind]


def completed(rollout: Rollout) -> list[dict[str, Any]]:
    """The calls, root first, without `project_id` and `op_name`, which the sink knows."""
    found = calls(rollout)
    times = chat.times(rollout, found)
    has_contexts = chat.has_contexts(rollout)
    usage, statuses = _usage(rollout, found), _statuses(found)
    made = []
    for call in found:
        inputs, output = _exchange(rollout, call, has_contexts)
        start, end = times[call.id]
        body: dict[str, Any] = {
            "id": call_id(rollout, call.id),
            "trace_id": call_id(rollout),
            "parent_id": None if call.parent is None else call_id(rollout, call.parent),
            "display_name": text(call.name),
            "started_at": _time(start),
            "ended_at": _time(end),
            "attributes": attributes(rollout, call),
            "inputs": plain(inputs),
            "output": plain(output),
            "summary": {
                "status_counts": statuses[call.id],
                **({"usage": usage[call.id]} if usage[call.id] else {}),
            },
            "exception": _exception(call),
        }
        if rollout.step is not None:
            body["wb_run_step"] = rollout.step
        made.append(_fit(body))
    return made


def attributes(rollout: Rollout, call: TracedCall) -> dict[str, Any]:
    """verl's five with their own types, what else identifies the rollout, and Weave's own."""
    about = {name: getattr(rollout, name) for name in _ABOUT}
    if not chat.has_times(call):
        about["times"] = "not known"
    if call.kind == "agent":
        about["sampling"] = without_tokens(rollout.sampling) or None
        about["meta"] = without_tokens(rollout.meta) or None
        about["reference"] = without_tokens(rollout.reference)
    elif call.span is not None:
        about["meta"] = without_tokens(call.span.meta) or None
    told = known(verl_attributes(rollout)) | {"rollscope": known(about)}
    if call.kind in _KINDS:
        told["weave"] = {"kind": _KINDS[call.kind]}
    return dict(plain(told))


def facts(rollout: Rollout) -> dict[str, Any]:
    """What is known of the outcome."""
    found = {name: getattr(rollout, name) for name in _FACTS}
    found = {name: None if value == {} else value for name, value in found.items()}
    if rollout.error is not None:
        found["error"] = known(asdict(rollout.error))
    return dict(plain(known(found)))


def later(rollout: Rollout) -> dict[str, Any]:
    """Everything that facts may have changed: the outcome, and `meta` with labels and flags."""
    meta = plain(without_tokens(rollout.meta))
    return facts(rollout) | ({"meta": meta} if meta else {})


# -- pieces ------------------------------------------------------------------------------


def _exchange(rollout: Rollout, call: TracedCall, has_contexts: bool) -> tuple[dict[str, Any], Any]:
    """Inputs and output of a call. Weave's inputs have names."""
    if call.kind == "agent":
        last = next(
            (n for n in reversed(range(len(rollout.messages))) if by_policy(rollout.messages[n])),
            None,
        )
        inputs, output = _conversation(rollout, last, True)
        return inputs, {**output, **facts(rollout)} or None
    if call.kind == "chat":
        inputs, output = _conversation(rollout, call.message, has_contexts)
        if call.message is not None and (own := rollout.messages[call.message].reward) is not None:
            output["reward"] = own
        return _sampling(rollout) | inputs, output
    given, said = chat.exchange(rollout, call)
    if given is None:
        return {}, said
    return given if isinstance(given, dict) else {"input": given}, said


def _conversation(
    rollout: Rollout, number: int | None, has_contexts: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The prompt of a message that was written, and the message. Without one: all there is."""
    if number is None:
        everything = [chat.message(m) for m in rollout.messages]
        return ({"messages": everything} if everything else {}), {}
    written = rollout.messages[number]
    seen = chat.prompt(rollout, number, has_contexts)
    inputs: dict[str, Any] = {"messages": [chat.message(m) for m in seen.messages]}
    if seen.left_out:
        inputs["left_out"] = f"{seen.left_out} earlier messages: see the call of the rollout"
    return inputs, chat.choice(written, chat.message(written))


def _sampling(rollout: Rollout) -> dict[str, Any]:
    """How the tokens were drawn, beside the messages, as a request has it."""
    found = {name: value for name, value in rollout.sampling.items() if name != "messages"}
    return dict(without_tokens(found))


def _usage(rollout: Rollout, found: list[TracedCall]) -> dict[str, dict[str, Any]]:
    """Tokens of each call and of all below it, by model, where they are known."""
    model = rollout.sampling.get("model")
    model = model if isinstance(model, str) else "policy"
    names = ("requests", "prompt_tokens", "completion_tokens", "total_tokens")
    own: dict[str, Counter[str]] = {}
    for call in found:
        if call.kind == "chat" and call.message is not None:
            counts = chat.tokens(rollout, call.message)
            if counts is not None:
                own[call.id] = Counter(dict(zip(names, (1, *counts, sum(counts)), strict=True)))
    sums = _with_below(found, own)
    return {id: {model: dict(counts)} if counts else {} for id, counts in sums.items()}


def _statuses(found: list[TracedCall]) -> dict[str, dict[str, int]]:
    """How many calls went well and how many did not, of each call and of all below it."""
    own = {call.id: Counter(["success" if call.error is None else "error"]) for call in found}
    sums = _with_below(found, own)
    return {
        id: {name: counts[name] for name in ("success", "error")} for id, counts in sums.items()
    }


def _with_below(found: list[TracedCall], own: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """What was counted of each call, with what was counted of all calls below it."""
    sums = {call.id: Counter(own.get(call.id)) for call in found}
    for call in reversed(found):  # each comes after its parent
        if call.parent is not None:
            sums[call.parent].update(sums[call.id])
    return sums


def _exception(call: TracedCall) -> str | None:
    if call.error is None:
        return None
    error = call.error
    return json.dumps({"type": error.type or error.kind, "message": error.text}, default=str)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _fit(body: dict[str, Any]) -> dict[str, Any]:
    """A call that Weave keeps: texts are cut, and say so, until it is small enough."""
    most = 1_000_000
    fitting = body
    while len(json.dumps(fitting)) > MOST_BYTES and most > 100:
        most //= 4
        fitting = body | {name: _cut(body[name], most) for name in ("inputs", "output")}
    return fitting


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item, most) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, most) for item in value]
    return cut(value, most) if isinstance(value, str) else value
