"""Events of OpenHands' SDK: each has a `kind`, `ActionEvent`, `ObservationEvent`, ...

The calls that one answer of the model made are events of their own with its `llm_response_id`;
they are one message. `TokenEvent` comes behind what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Error, Message, Part, Tokens, ToolCall
from ..model.chat import from_chat
from ._files import seconds
from ._openhands_events import Conversation

_OF_EVENT = {
    "id", "timestamp", "source", "parent_id", "kind", "tool_name", "tool_call_id", "tool_call",
    "thought", "reasoning_content", "llm_message", "llm_response_id", "observation",
    "extended_content", "error", "rejection_reason", "system_prompt", "dynamic_context", "tools",
    "action", "action_id", "summary", "detail",
}  # fmt: skip
_SILENT = {
    "ConversationStateUpdateEvent", "LLMCompletionLogEvent", "PauseEvent", "CondensationRequest",
    "StreamingDeltaEvent",
}  # fmt: skip
"""Events about the program that runs the agent."""


def messages(events: Sequence[Mapping[str, Any]]) -> Conversation:
    made: list[Message] = []
    answers: dict[str, Message] = {}
    stop: str | None = None
    failed: Error | None = None
    tools: list[Any] = []
    for event in events:
        kind = str(event.get("kind"))
        if kind in _SILENT:
            continue
        if kind == "TokenEvent":
            _add_tokens(made, event)
        elif kind == "ActionEvent":
            _add_action(made, answers, event)
            stop = "finish" if event.get("tool_name") == "finish" else None
        elif kind == "ConversationErrorEvent":
            failed = Error(type=event.get("code"), text=event.get("detail"))
        else:
            tools = tools or list(event.get("tools") or ())
            made.append(_message(kind, event))
    return Conversation(made, stop, failed, tools)


def _add_action(made: list[Message], answers: dict[str, Message], event: Mapping[str, Any]) -> None:
    called = event.get("tool_call") or {}
    call = ToolCall(
        id=called.get("id") or event.get("tool_call_id"),
        name=called.get("name") or event.get("tool_name"),
        arguments=called.get("arguments"),
    )
    answer = answers.get(str(event.get("llm_response_id")))
    if answer is not None and event.get("llm_response_id") is not None:
        answer.tool_calls.append(call)
        return
    chat = {"role": "assistant", "content": event.get("thought")}
    if event.get("reasoning_content"):
        chat["reasoning_content"] = event["reasoning_content"]
    message = _plain(from_chat(chat))
    message.tool_calls, message.sampled = [call], True
    message.start = seconds(event.get("timestamp"))
    message.meta = _rest(event)
    answers[str(event.get("llm_response_id"))] = message
    made.append(message)


def _message(kind: str, event: Mapping[str, Any]) -> Message:
    if kind == "SystemPromptEvent":
        prompt = [event.get("system_prompt"), event.get("dynamic_context")]
        message = from_chat({"role": "system", "content": [p for p in prompt if p]})
    elif kind == "MessageEvent":
        said = dict(event["llm_message"])
        said["content"] = [*(said.get("content") or ()), *(event.get("extended_content") or ())]
        message = from_chat({k: v for k, v in said.items() if v not in (None, [])})
        message.sampled = event.get("source") == "agent"
    elif kind == "ObservationEvent":
        seen = event["observation"]
        content = [*(seen.get("content") or ()), *(event.get("extended_content") or ())]
        message = from_chat({"role": "tool", "content": content})
        message.state = {k: v for k, v in seen.items() if k not in ("content", "kind")} or None
    elif kind in ("AgentErrorEvent", "UserRejectObservation"):
        why = event.get("error") or f"Action rejected: {event.get('rejection_reason')}"
        message = Message(role="tool", content=str(why))
    else:  # a condensation, a hook, or what is not known yet
        told = event.get("summary") or event.get("detail")
        message = Message(role="environment", name=kind)
        message.content = None if told is None else str(told)
    if message.role == "tool":
        message.tool_call_id, message.name = event.get("tool_call_id"), event.get("tool_name")
    message.start = seconds(event.get("timestamp"))
    message.meta |= _rest(event)
    return _plain(message)


def _plain(message: Message) -> Message:
    """Content that is only text is text."""
    parts = message.content
    if isinstance(parts, list) and all(p.type == "text" and _is_bare(p) for p in parts):
        message.content = "\n".join(p.text or "" for p in parts) if parts else None
    return message


def _is_bare(part: Part) -> bool:
    return not isinstance(part.data, dict) or not any(part.data.values())


def _add_tokens(made: list[Message], event: Mapping[str, Any]) -> None:
    """The ids of the last answer. Those of its prompt are those of all messages before."""
    answer = next((m for m in reversed(made) if m.sampled), None)
    if answer is not None and answer.tokens is None:
        answer.tokens = Tokens(event.get("response_token_ids"))


def _rest(event: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in event.items() if k not in _OF_EVENT and v not in (None, [], {}, "")}
