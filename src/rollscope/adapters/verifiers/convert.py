"""A `Trace` or `Episode` of verifiers v1, or its JSON record, as rollouts. Nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Error, Message, Rollout, Span, Tokens
from ...model.chat import from_chat
from .._arrays import same_length
from .._messages import note_wrote

_COMPACT = {
    "logprobs": "logprob",
    "advantages": "advantage",
    "reference_logprobs": "ref_logprob",
    "trainer_logprobs": "train_logprob",
    "entropies": "entropy",
    "is_masked": "is_masked",
}
"""Fields of a node with one value for each sampled token, and the streams they become."""

_LIMITS = {
    "max_turns",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "context_length",
}
_NODE_FIELDS = {
    "parent", "message", "sampled", "timestamp", "token_ids", "mask", "is_content",
    "loss_weights", *_COMPACT,
}  # fmt: skip
_TRACE_FIELDS = {"id", "nodes", "calls", "rewards", "timing", "stop_condition"}
_PHASES = ("boot", "setup", "agent", "finalize", "scoring")


def convert(item: Any, *, problems: list[str] | None = None) -> list[Rollout]:
    """The rollouts of an `Episode` or `Trace`: the object itself or its JSON record.

    An episode that failed before any agent began is one rollout without messages.
    """
    problems = problems if problems is not None else []
    record = _record(item)
    if "nodes" in record:
        return [_rollout(record, {}, problems)]
    traces = record.get("traces") or []
    return [_rollout(trace, record, problems) for trace in traces] or [_traceless(record)]


def _record(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    try:
        found = item.to_record(float_decimals=None)  # the default rounds to four decimals
    except TypeError:  # before 0.4.0 there was nothing to choose
        found = item.to_record()
    return dict(found)


def _rollout(trace: Mapping[str, Any], episode: Mapping[str, Any], problems: list[str]) -> Rollout:
    calls = [c for c in trace.get("calls") or () if c]
    by_node = {c["node"]: c for c in calls if c.get("node") is not None}
    rewards = {n: r for n, r in (trace.get("rewards") or {}).items() if r is not None}
    rollout = _identity(trace, episode)
    rollout.messages = [
        _message(i, node, by_node.get(i), problems)
        for i, node in enumerate(trace.get("nodes") or ())
    ]
    rollout.spans = [*_phases(trace.get("timing") or {}), *(_call(c) for c in calls)]
    rollout.rewards = {n: float(r["score"]) for n, r in rewards.items()}
    if rewards:
        rollout.reward = sum(r["score"] * _weight(r) for r in rewards.values())
    rollout.stop_reason = trace.get("stop_condition")
    rollout.truncated = _truncated(trace, calls)
    rollout.advantage = _advantage(trace)
    rollout.sampling = _known((calls[0].get("sampling") if calls else None) or {})
    rollout.meta |= _known({k: v for k, v in trace.items() if k not in _TRACE_FIELDS})
    weights = {n: _weight(r) for n, r in rewards.items() if _weight(r) != 1.0}
    unscored = [n for n, r in (trace.get("rewards") or {}).items() if r is None]
    rollout.meta |= _known({"reward_weights": weights or None, "unscored": unscored or None})
    errors = trace.get("errors") or ()
    if errors and not trace.get("ok"):
        rollout.error = _error(errors[-1])
    _fate(rollout, trace)
    return rollout


def _traceless(episode: Mapping[str, Any]) -> Rollout:
    rollout = _identity({}, episode)
    rollout.key = episode.get("id")
    errors = episode.get("errors") or ()
    rollout.error = _error(errors[-1]) if errors else None
    rollout.fate, rollout.fate_reason = "failed", "no agent ran"
    return rollout


def _identity(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> Rollout:
    """What the rollout is, and when it was: task, group, run, step, policy."""
    task = trace.get("task") or episode.get("task") or {}
    data = task.get("data") or {}
    run = episode.get("run") or {}
    work = run.get("work") or {}
    env = episode.get("env") or {}
    policy = work.get("policy") or {}
    agent = trace.get("agent") or {}
    timing = trace.get("timing") or {}
    ends = [float(p["end"]) for p in timing.values() if isinstance(p, Mapping) and p.get("end")]
    kind = work.get("type") or run.get("type") or (trace.get("info") or {}).get("kind")
    own = {"id", "traces", "task", "group", "env"}
    return Rollout(
        key=trace.get("id"),
        run=run.get("name") or run.get("id"),
        step=work.get("step"),
        split=kind,
        task=_first(task.get("key"), task.get("hash"), data.get("name"), data.get("idx")),
        group=(episode.get("group") or {}).get("id"),
        policy_version=policy.get("start"),
        environment=env.get("name") or env.get("id") or None,
        reference=_first(data.get("answer"), data.get("reference")),
        start=timing.get("start") or None,
        end=max(ends, default=None),
        meta=_known({"episode": _known({k: v for k, v in episode.items() if k not in own})})
        | _known({"episode_id": episode.get("id"), "env": env or None, "task": task or None})
        | _known({"agent": agent or None}),
    )


def _fate(rollout: Rollout, trace: Mapping[str, Any]) -> None:
    """Shipped to the trainer, if prime-rl says so; else as far as it came."""
    info = trace.get("info") or {}
    ship = info.get("ship")
    if info.get("effective") and rollout.split != "eval":
        rollout.fate = "trained"
        rollout.trained_step = ship.get("step") if isinstance(ship, Mapping) else None
    elif rollout.error is not None:
        rollout.fate = "failed"
    elif rollout.messages:
        rollout.fate = "generated" if rollout.reward is None else "scored"


def _truncated(trace: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> bool | None:
    if trace.get("stop_condition") in _LIMITS:
        return True
    last = next((c for c in reversed(calls) if not c.get("error")), None)
    return None if last is None else last.get("finish_reason") == "length"


def _advantage(trace: Mapping[str, Any]) -> float | None:
    """prime-rl's scalar, else the one value that all sampled tokens share."""
    scalar = (trace.get("info") or {}).get("advantage")
    if isinstance(scalar, (int, float)):
        return float(scalar)
    found = {a for node in trace.get("nodes") or () for a in node.get("advantages") or ()}
    return float(found.pop()) if len(found) == 1 else None


# -- messages --------------------------------------------------------------------------


def _message(
    i: int, node: Mapping[str, Any], call: Mapping[str, Any] | None, problems: list[str]
) -> Message:
    message = from_chat(_known(node["message"]))
    parent = node.get("parent")
    if parent is None:
        message.parent = -1 if i else None
    elif parent != i - 1:
        message.parent = parent
    message.sampled = bool(node.get("sampled"))
    message.tokens = _tokens(i, node, problems)
    message.end = node.get("timestamp")
    message.meta |= _known({k: v for k, v in node.items() if k not in _NODE_FIELDS})
    if message.sampled and message.tokens is not None and message.tokens.mask is not None:
        note_wrote(message, message.tokens.mask)
    if call is not None:
        message.stop_reason = call.get("finish_reason")
        span = call.get("time") or {}
        message.start = span.get("start") or None
    return message


def _tokens(i: int, node: Mapping[str, Any], problems: list[str]) -> Tokens | None:
    """Ids and streams that the node adds. Compact streams are laid over its sampled tokens."""
    ids = node.get("token_ids") or []
    if not ids:
        return None
    mask = same_length(f"node {i} mask", node.get("mask") or None, len(ids), problems)
    streams: dict[str, Any] = {"mask": None if mask is None else [int(m) for m in mask]}
    if node.get("is_content"):
        content = same_length(f"node {i} is_content", node["is_content"], len(ids), problems)
        streams["is_content"] = None if content is None else [int(c) for c in content]
    for field, name in _COMPACT.items():
        if node.get(field):
            streams[name] = _spread(f"node {i} {field}", node[field], mask, problems)
    for name, weights in (node.get("loss_weights") or {}).items():
        where = f"node {i} loss_weights {name}"
        streams[f"loss_weight.{name}"] = same_length(where, weights, len(ids), problems)
    return Tokens(list(ids), streams=streams)


def _spread(
    where: str, values: Sequence[Any], mask: Sequence[Any] | None, problems: list[str]
) -> list[Any] | None:
    places = [k for k, sampled in enumerate(mask or ()) if sampled]
    fitting = same_length(where, values, len(places), problems)
    if fitting is None or mask is None:
        return None
    row: list[Any] = [None] * len(mask)
    for place, value in zip(places, fitting, strict=True):
        row[place] = value
    return row


# -- spans and errors ------------------------------------------------------------------


def _call(call: Mapping[str, Any]) -> Span:
    time = call.get("time") or {}
    told = {"node", "time", "error", "finish_reason", "usage"}
    return Span(
        name="model",
        inputs=_known({k: v for k, v in call.items() if k not in told}) or None,
        outputs=_known({k: call.get(k) for k in ("finish_reason", "usage")}) or None,
        error=_error(call["error"]) if call.get("error") else None,
        start=time.get("start") or None,
        end=time.get("end") or None,
        message=call.get("node"),
        meta=_known({"error": call.get("error")}),
    )


def _phases(timing: Mapping[str, Any]) -> list[Span]:
    return [
        Span(
            name=phase,
            start=span["start"],
            end=span.get("end") or None,
            meta={k: v for k, v in span.items() if k not in ("start", "end")},
        )
        for phase in _PHASES
        if (span := timing.get(phase) or {}).get("start")
    ]


_KINDS = {
    "ProviderError": "infrastructure",
    "SandboxError": "infrastructure",
    "InterceptionError": "infrastructure",
    "TunnelError": "infrastructure",
    "HarnessError": "infrastructure",
    "ToolsetError": "tool",
    "EnvError": "environment",
    "TaskError": "environment",
    "OverlongPromptError": "limit",
    "TimeoutError": "limit",
}
"""Whose fault an error of this class is. For other classes we do not know."""


def _error(error: Mapping[str, Any]) -> Error:
    kind = error.get("type")
    return Error(kind=_KINDS.get(str(kind)), type=kind, text=error.get("message"))


def _weight(reward: Mapping[str, Any]) -> float:
    weight = reward.get("weight")
    return 1.0 if weight is None else float(weight)


def _first(*values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _known(record: Mapping[str, Any]) -> dict[str, Any]:
    """Without the entries that say nothing."""
    return {k: v for k, v in record.items() if v is not None and v != [] and v != {}}
