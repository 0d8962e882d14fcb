"""What tracing systems are told of a conversation: prompts, answers, tokens, times.

The chat views of MLflow and Weave show nothing of a conversation if a single message does not have
the form of OpenAI's chat API. `message` gives it that form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..model import Message, Rollout
from ..model.chat import parsed, to_chat
from ..model.conversation import by_policy, parent_of, path_to
from ._plain import known, without_tokens
from .calls import ROOT, TracedCall

MOST_CONTEXT = 1_000_000
"""As long as all prompts of a rollout together stay below this many characters, each call has its
whole prompt. Beyond, a call has only what is new since the policy last wrote, so that the size
grows with the rollout and not with its square."""


def message(found: Message) -> dict[str, Any]:
    """A message in the form that chat views take: texts and pictures, and tool calls of which
    id, name and arguments are texts (empty where there is none)."""
    body = to_chat(found)
    if isinstance(body["content"], list):
        body["content"] = [_shown(part) for part in body["content"]]
    for call in body.get("tool_calls", ()):
        function = call["function"]
        call["id"] = call["id"] or ""
        function |= {"name": function["name"] or "", "arguments": function["arguments"] or ""}
    return body


def choice(written: Message, body: dict[str, Any]) -> dict[str, Any]:
    """The output of a chat call, as OpenAI's API gives it."""
    return {"choices": [known({"index": 0, "message": body, "finish_reason": written.stop_reason})]}


class Prompt(NamedTuple):
    """What a chat call was given."""

    messages: list[Message]
    left_out: int
    """Earlier messages, which the root has."""


def prompt(rollout: Rollout, number: int, has_contexts: bool) -> Prompt:
    """What the model saw when it wrote message `number`."""
    before = [rollout.messages[n] for n in path_to(rollout.messages, number)[:-1]]
    first = 0
    if not has_contexts:
        first = next((i for i in reversed(range(len(before))) if by_policy(before[i])), -1) + 1
    return Prompt(before[first:], first)


def has_contexts(rollout: Rollout) -> bool:
    """May each call repeat its whole prompt?"""
    sizes: list[int] = []
    total = 0
    for number, found in enumerate(rollout.messages):
        parent = parent_of(number, found)
        before = sizes[parent] if parent >= 0 else 0
        sizes.append(before + _length(found))
        total += before if by_policy(found) else 0
    return total <= MOST_CONTEXT


def tokens(rollout: Rollout, number: int) -> tuple[int, int] | None:
    """Tokens that were read and written for message `number`, if all of them are known."""
    counts = [
        None if (found := rollout.messages[n].tokens) is None else len(found)
        for n in path_to(rollout.messages, number)
    ]
    known = [count for count in counts if count is not None]
    return (sum(known[:-1]), known[-1]) if len(known) == len(counts) else None


def exchange(rollout: Rollout, call: TracedCall) -> tuple[Any, Any]:
    """The inputs and outputs of a tool or a span, from the messages if they have them."""
    span = call.span
    inputs = without_tokens(span.inputs) if span is not None else None
    outputs = without_tokens(span.outputs) if span is not None else None
    if call.kind == "tool":
        if call.tool is not None and call.tool.arguments is not None:
            inputs = parsed(call.tool.arguments)
        if call.message is not None:
            outputs = message(rollout.messages[call.message])["content"]
    return inputs, outputs


def times(rollout: Rollout, found: Sequence[TracedCall]) -> dict[str, tuple[float, float]]:
    """Start and end of each call. These systems require both. A call without known times has no
    length and stands where the previous call ended, or where the call around it began. A rollout
    without any known time stands at the time it was logged."""
    known = [t for call in found for t in (call.start, call.end) if t is not None]
    logged = rollout.time or 0.0
    first = rollout.start if rollout.start is not None else min(known, default=logged)
    last = rollout.end if rollout.end is not None else max(known, default=first)
    made = {ROOT: (first, max(first, last))}
    now: dict[str | None, float] = {ROOT: first}
    for call in found[1:]:
        start = call.start if call.start is not None else now[call.parent]
        end = max(start, call.end) if call.end is not None else start
        made[call.id] = (start, end)
        now[call.parent], now[call.id] = end, start
    return made


def has_times(call: TracedCall) -> bool:
    return call.start is not None and call.end is not None


def _shown(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] in ("text", "image_url"):
        return part
    said = part.get("text")
    return {"type": "text", "text": said if isinstance(said, str) else _json(part)}


def _length(found: Message) -> int:
    content = found.content
    return len(content) if isinstance(content, str) else len(_json(to_chat(found)["content"]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
