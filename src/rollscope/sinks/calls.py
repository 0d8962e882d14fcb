"""A rollout as a tree of timed calls, which is how tracing systems see the world.

The agent is at the root; below it lie the spans that were recorded, a `chat` call for each
message that the policy wrote, and a `tool` call for each tool that it called. Nothing is
guessed: a call whose times are not known has none, and an answer belongs to a call only if it
carries the call's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ..model import Error, Message, Rollout, Span, ToolCall
from ..model.conversation import by_policy, tool_calls

CallKind = Literal["agent", "chat", "tool", "step"]
"""`agent`: the rollout. `chat`: the policy writes a message. `tool`: a tool is called.
`step`: any other span."""

ROOT = "rollout"


class TracedCall(NamedTuple):
    """One call. Its inputs and outputs are the rollout's messages, or those of its span."""

    kind: CallKind
    id: str
    """Unique in its rollout, and the same each time."""
    parent: str | None
    name: str
    start: float | None = None
    end: float | None = None
    message: int | None = None
    """`chat`: the message that was written. `tool`: the message with the answer, if any."""
    tool: ToolCall | None = None
    span: Span | None = None
    error: Error | None = None


def calls(rollout: Rollout) -> list[TracedCall]:
    """Every call of a rollout, each after its parent, otherwise in the order of recording."""
    root = TracedCall(
        "agent",
        ROOT,
        None,
        rollout.environment or "rollout",
        rollout.start,
        rollout.end,
        error=rollout.error,
    )
    return [root, *_below(ROOT, _children(_spans(rollout) + _of_messages(rollout)))]


def verl_attributes(rollout: Rollout) -> dict[str, Any]:
    """The five attributes of verl's own traces, so that its filters find ours. None: unknown."""
    return {
        "step": rollout.step,
        "sample_index": rollout.task,
        "rollout_n": rollout.index,
        "experiment_name": rollout.run,
        "validate": None if rollout.split is None else rollout.split == "eval",
    }


def _spans(rollout: Rollout) -> list[TracedCall]:
    """The recorded spans. Of nested spans that made one message, the innermost is the call."""
    ids = {span.id for span in rollout.spans if span.id is not None}
    callers = {
        (span.parent, span.message)
        for span in rollout.spans
        if span.parent is not None and span.message is not None
    }
    found = []
    for number, span in enumerate(rollout.spans):
        is_made_below = (span.id, span.message) in callers
        message = None if is_made_below else span.message
        kind, tool = _kind(rollout, span, message)
        parent = span.parent if span.parent in ids and span.parent != span.id else ROOT
        found.append(
            TracedCall(
                kind,
                span.id or f"span-{number}",
                parent,
                tool.name if tool is not None and tool.name else span.name,
                span.start,
                span.end,
                message if kind in ("chat", "tool") else None,
                tool,
                span,
                span.error,
            )
        )
    return found


def _kind(rollout: Rollout, span: Span, number: int | None) -> tuple[CallKind, ToolCall | None]:
    if number is None or not 0 <= number < len(rollout.messages):
        return "step", None
    message = rollout.messages[number]
    if _is_answer(message):
        return "tool", _call_of(rollout, message) or ToolCall(name=message.name or span.name)
    return ("chat", None) if by_policy(message) else ("step", None)


def _of_messages(rollout: Rollout) -> list[TracedCall]:
    """What the messages tell beyond the spans."""
    taken = {span.message for span in rollout.spans if span.message is not None}
    answers = {
        message.tool_call_id: number
        for number, message in enumerate(rollout.messages)
        if _is_answer(message) and message.tool_call_id is not None
    }
    found = []
    for number, message in enumerate(rollout.messages):
        if not by_policy(message):
            continue
        name = message.name or "assistant"
        if number not in taken:
            found.append(
                TracedCall(
                    "chat", f"message-{number}", ROOT, name, message.start, message.end, number
                )
            )
        for place, tool in enumerate(tool_calls(message)):
            answer = answers.get(tool.id) if tool.id is not None else None
            if answer is not None and answer in taken:
                continue
            said = rollout.messages[answer] if answer is not None else None
            found.append(
                TracedCall(
                    "tool",
                    f"message-{number}-tool-{place}",
                    ROOT,
                    tool.name or "tool",
                    said.start if said is not None else None,
                    said.end if said is not None else None,
                    answer,
                    tool,
                )
            )
    return found


def _is_answer(message: Message) -> bool:
    return message.role == "tool" and not by_policy(message)


def _call_of(rollout: Rollout, answer: Message) -> ToolCall | None:
    """The call that an answer names."""
    if answer.tool_call_id is None:
        return None
    return next(
        (
            call
            for message in rollout.messages
            for call in tool_calls(message)
            if call.id == answer.tool_call_id
        ),
        None,
    )


def _children(found: list[TracedCall]) -> dict[str | None, list[TracedCall]]:
    children: dict[str | None, list[TracedCall]] = {}
    for call in found:
        children.setdefault(call.parent, []).append(call)
    return children


def _below(parent: str, children: dict[str | None, list[TracedCall]]) -> Iterator[TracedCall]:
    """Depth first, without recursion: spans may nest deeply. A circle of parents, which no
    tree can hold, hangs below the root."""
    seen: set[str] = set()
    waiting = list(reversed(children.get(parent, [])))
    everything = [call for below in children.values() for call in below]
    while True:
        while waiting:
            call = waiting.pop()
            if call.id in seen:
                continue
            seen.add(call.id)
            yield call
            waiting.extend(reversed(children.get(call.id, [])))
        lost = next((call for call in everything if call.id not in seen), None)
        if lost is None:
            return
        waiting = [lost._replace(parent=parent)]
