"""A trace's record, made again from nothing but the stored rollout: proof that nothing is lost."""

from __future__ import annotations

from typing import Any

from rollscope.model import Message, Part, Rollout, Span
from rollscope.model.conversation import WROTE

_COMPACT = {
    "logprob": "logprobs",
    "advantage": "advantages",
    "ref_logprob": "reference_logprobs",
    "train_logprob": "trainer_logprobs",
    "entropy": "entropies",
    "is_masked": "is_masked",
}
_PHASES = ("boot", "setup", "agent", "finalize", "scoring")


def restore(rollout: Rollout) -> dict[str, Any]:
    meta = dict(rollout.meta)
    weights, unscored = meta.pop("reward_weights", {}), meta.pop("unscored", [])
    for name in ("episode", "episode_id", "env"):
        meta.pop(name, None)
    record = {"id": rollout.key, "stop_condition": rollout.stop_reason, **meta}
    record["nodes"] = [_node(i, m) for i, m in enumerate(rollout.messages)]
    record["calls"] = [_call(s) for s in rollout.spans if s.name == "model"]
    never = {"start": 0.0, "end": 0.0}  # how verifiers writes a phase that was not reached
    record["timing"] = {"start": rollout.start, **dict.fromkeys(_PHASES, never)} | {
        s.name: {"start": s.start, "end": s.end, **s.meta}
        for s in rollout.spans
        if s.name in _PHASES
    }
    if record["timing"]["agent"] is never:
        zero = {"duration": 0.0}
        record["timing"]["agent"] = {**never, "model": zero, "harness": zero}
    record["rewards"] = {
        name: {"score": score, "weight": weights.get(name, 1.0)}
        for name, score in rollout.rewards.items()
    } | dict.fromkeys(unscored)
    return said(record)


def _node(i: int, message: Message) -> dict[str, Any]:
    meta = dict(message.meta)
    meta.pop(WROTE, None)  # ours: it is told by their mask
    kept = {k: meta.pop(k) for k in ("provider_state",) if k in meta}
    parent = {None: i - 1 if i else None, -1: None}.get(message.parent, message.parent)
    node: dict[str, Any] = {
        "parent": parent,
        "message": _message(message) | kept,
        "sampled": message.sampled,
        "timestamp": message.end,
        **meta,
    }
    if message.tokens is not None:
        node["token_ids"] = message.tokens.ids
        streams = dict(message.tokens.streams)
        mask = [bool(m) for m in streams.pop("mask", [])]
        node["mask"] = mask
        for name, values in streams.items():
            if name in _COMPACT:
                node[_COMPACT[name]] = [v for v, m in zip(values, mask, strict=True) if m]
            elif name == "is_content":
                node[name] = [bool(v) for v in values]
            else:
                node.setdefault("loss_weights", {})[name.removeprefix("loss_weight.")] = values
    return node


def _message(message: Message) -> dict[str, Any]:
    content: Any = message.content
    body: dict[str, Any] = {"role": message.role, "name": message.name}
    if isinstance(content, list):
        thoughts = [p.text for p in content if p.type == "reasoning"]
        body["reasoning_content"] = thoughts[0] if thoughts else None
        shown = [_part(p) for p in content if p.type != "reasoning"]
        texts = [p for p in shown if p["type"] == "text"]
        content = texts[0]["text"] if thoughts and texts else None if thoughts else shown
    body["content"] = content
    body["tool_calls"] = [
        {"type": "function", "id": c.id, "name": c.name, "arguments": c.arguments}
        for c in message.tool_calls
    ]
    body["tool_call_id"] = message.tool_call_id
    return body


def _part(part: Part) -> dict[str, Any]:
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": part.image}}
    return {"type": part.type, "text": part.text}


def _call(span: Span) -> dict[str, Any]:
    time = {"start": span.start, "end": span.end}
    told = {**(span.inputs or {}), **(span.outputs or {}), **span.meta}
    return {"node": span.message, "time": time, **told}


def said(value: Any) -> Any:
    """Without entries that say nothing: None, and empty lists and objects."""
    if isinstance(value, dict):
        kept = {k: said(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v != [] and v != {}}
    if isinstance(value, list):
        return [said(v) for v in value]
    return value
