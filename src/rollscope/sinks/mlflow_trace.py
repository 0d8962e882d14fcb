"""A rollout as MLflow sees one: spans, tags, and assessments. Plain data, without MLflow.

The chat view of MLflow's page reads `messages` and `choices` as OpenAI writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..model import Error, Message, Rollout
from ..model.chat import to_chat
from ..model.conversation import by_policy, prompt_size
from ..model.schema import scalars
from . import _chat as chat
from ._plain import known, milliseconds, plain, text, without_tokens
from .calls import TracedCall, calls, verl_attributes

PREVIEW = 1000
"""Characters of a preview; MLflow's column holds no more."""

MOST_TAG = 4000
"""Characters of a tag's value, a little less than MLflow takes."""

TYPES = {"agent": "AGENT", "chat": "CHAT_MODEL", "tool": "TOOL", "step": "UNKNOWN"}
_ROLES = ("system", "user", "assistant", "tool")
_ELSEWHERE = ("id", "project", "run", "step", "task", "index", "reward", "advantage", "environment",
              "key", "worker")  # fmt: skip
"""Scalars without a tag `rollscope.*`, because they are sent in another form."""
_OWN = ("reward", "advantage", "turn_reward")
"""Names of our own assessments. A part of the reward with such a name gets a prefix."""


class MlflowSpan(NamedTuple):
    """One span. Times are in nanoseconds, because MLflow has them so."""

    id: str
    parent: str | None
    name: str
    start: int
    end: int
    error: Error | None
    attributes: dict[str, Any]


class Assessment(NamedTuple):
    """A number (or text) that judges a rollout or one of its spans."""

    id: str
    name: str
    value: Any
    rationale: str | None = None
    span: str | None = None
    is_expected: bool = False
    """What the answer should have been, not how good it was."""


def trace_id(experiment: str, rollout: Rollout | str) -> str:
    """The same each time, so that sending again changes nothing. Each experiment has its own."""
    id = rollout if isinstance(rollout, str) else rollout.id
    return "tr-" + _digest(16, experiment, str(id))


def spans(rollout: Rollout) -> list[MlflowSpan]:
    """The tree of calls, root first."""
    found = calls(rollout)
    times = chat.times(rollout, found)
    has_contexts = chat.has_contexts(rollout)
    made = []
    for call in found:
        attributes: dict[str, Any] = {"mlflow.spanType": TYPES[call.kind]}
        inputs, outputs = _exchange(rollout, call, has_contexts, attributes)
        if inputs is not None:
            attributes["mlflow.spanInputs"] = plain(inputs)
        if outputs is not None:
            attributes["mlflow.spanOutputs"] = plain(outputs)
        if not chat.has_times(call):
            attributes["rollscope.times"] = "not known"
        if call.span is not None and call.span.meta:
            attributes["rollscope.meta"] = plain(without_tokens(call.span.meta))
        start, end = (round(time * 1e9) for time in times[call.id])
        parent = None if call.parent is None else span_id(rollout, call.parent)
        made.append(
            MlflowSpan(
                span_id(rollout, call.id),
                parent,
                text(call.name),
                start,
                end,
                call.error,
                attributes,
            )
        )
    return made


def span_id(rollout: Rollout, call: str) -> str:
    return _digest(8, str(rollout.id), call)


def tags(rollout: Rollout) -> dict[str, str]:
    """verl's five, written as verl writes them, and the rest as `rollscope.*`. What is not known
    has no tag."""
    own = verl_attributes(rollout) | {
        "mlflow.traceName": rollout.environment or "rollout",
        "rollscope.id": rollout.id,
    }
    own |= {f"rollscope.{name}": v for name, v in scalars(rollout, _ELSEWHERE).items()}
    own |= {f"rollscope.{name}": _words(rollout.meta.get(name)) for name in ("labels", "flags")}
    return {name: text(str(value))[:MOST_TAG] for name, value in known(own).items()}


def assessments(rollout: Rollout, trace: str) -> list[Assessment]:
    """Rewards, the advantage, and the reference as what was expected."""

    def made(name: str, value: Any, **more: Any) -> Assessment:
        id = "a-" + _digest(16, trace, name, str(more.get("span")))
        return Assessment(id, name, plain(value), **more)

    found = []
    if rollout.reward is not None:
        found.append(made("reward", rollout.reward))
    for part in [*rollout.rewards, *(p for p in rollout.reward_texts if p not in rollout.rewards)]:
        name = f"rewards.{part}" if part in _OWN else part
        said = rollout.reward_texts.get(part)
        value = rollout.rewards.get(part)
        found.append(made(text(name), said if value is None else value, rationale=said))
    if rollout.advantage is not None:
        found.append(made("advantage", rollout.advantage))
    spans = {
        call.message: span_id(rollout, call.id) for call in calls(rollout) if call.kind == "chat"
    }
    for number, message in enumerate(rollout.messages):
        if message.reward is not None and number in spans:
            found.append(made("turn_reward", message.reward, span=spans[number]))
    if rollout.reference is not None:
        expected = without_tokens(rollout.reference)
        found.append(made("reference", expected, is_expected=True))
    return found


def previews(rollout: Rollout) -> tuple[str | None, str | None]:
    """The last words before the policy first wrote, and its last ones."""
    first = prompt_size(rollout.messages)
    asked = next((said for m in reversed(rollout.messages[:first]) if (said := _said(m))), None)
    written = [m for m in rollout.messages[first:] if by_policy(m)]
    answered = next((said for m in reversed(written) if (said := _said(m))), None)
    return asked and asked[:PREVIEW], answered and answered[:PREVIEW]


def duration(rollout: Rollout) -> int | None:
    """Milliseconds; None where nobody took the time."""
    took = milliseconds(rollout.start, rollout.end)
    return None if took is None else max(0, round(took))


def message(found: Message) -> dict[str, Any]:
    """A message as MLflow's chat view takes it: it knows four roles, and thoughts as
    `reasoning`."""
    body = chat.message(found)
    if body["role"] not in _ROLES:
        body["rollscope.role"] = body["role"]
        body["role"] = "assistant" if by_policy(found) else "user"
        if found.role == "developer":
            body["role"] = "system"
    if "reasoning_content" in body:
        body["reasoning"] = body.pop("reasoning_content")
    return body


# -- pieces ------------------------------------------------------------------------------


def _exchange(
    rollout: Rollout, call: TracedCall, has_contexts: bool, attributes: dict[str, Any]
) -> tuple[Any, Any]:
    """Inputs and outputs of a call. Everything else goes to the attributes."""
    if call.kind == "agent":
        attributes |= _about(rollout)
        first = prompt_size(rollout.messages)
        return _messages(rollout.messages[:first]), _messages(rollout.messages[first:])
    if call.kind == "chat" and call.message is not None:
        return _chat(rollout, call.message, has_contexts, attributes)
    return chat.exchange(rollout, call)


def _chat(
    rollout: Rollout, number: int, has_contexts: bool, attributes: dict[str, Any]
) -> tuple[Any, Any]:
    written = rollout.messages[number]
    seen = chat.prompt(rollout, number, has_contexts)
    if seen.left_out:
        attributes["rollscope.prompt"] = f"{seen.left_out} earlier messages: see the root span"
    if rollout.sampling:
        attributes["rollscope.sampling"] = plain(without_tokens(rollout.sampling))
    if isinstance(rollout.sampling.get("model"), str):
        attributes["mlflow.llm.model"] = rollout.sampling["model"]
    if (counts := chat.tokens(rollout, number)) is not None:
        names = ("input_tokens", "output_tokens", "total_tokens")
        usage = dict(zip(names, (*counts, sum(counts)), strict=True))
        attributes["mlflow.chat.tokenUsage"] = usage
    return _messages(seen.messages), chat.choice(written, message(written))


def _about(rollout: Rollout) -> dict[str, Any]:
    """The attributes of the root span that describe its rollout. Numbers stay numbers."""
    told = {f"rollscope.{name}": v for name, v in scalars(rollout, without=("id",)).items()}
    for name in ("rewards", "sampling", "meta"):
        told[f"rollscope.{name}"] = without_tokens(getattr(rollout, name)) or None
    return dict(plain(known(told)))


def _messages(found: Sequence[Message]) -> dict[str, Any] | None:
    return {"messages": [message(m) for m in found]} if found else None


def _words(value: Any) -> str | None:
    """Labels and flags, which are filtered by `LIKE '%loop%'`."""
    is_words = isinstance(value, list) and value and all(isinstance(v, str) for v in value)
    return ", ".join(value) if is_words else None


def _said(found: Message) -> str:
    content = to_chat(found)["content"]
    if isinstance(content, list):
        content = " ".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return text(content or "")


def _digest(size: int, *parts: str) -> str:
    joined = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.blake2b(joined, digest_size=size).hexdigest()
