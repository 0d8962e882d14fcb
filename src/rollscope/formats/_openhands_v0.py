"""Events of OpenHands before its SDK: `{"action": ..., "args": ...}` and `{"observation": ...}`.

What the model wrote stands in `tool_call_metadata.model_response` of each action that it led to;
that is its message, once. Without it (agents that call no functions) a message is the thought and
the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Error, Message, Part, ToolCall
from ..model.chat import from_chat
from ._files import seconds
from ._openhands_events import Conversation

_SILENT = {"null", "agent_state_changed", "change_agent_state", "pause", "resume", "stop", "start"}
"""Events about the program that runs the agent. Nobody says anything in them."""
_ASKS = "recall"
"""An action that asks for what the next observation brings; no model reads the question."""
_ENDS = ("finish", "reject")
_OF_EVENT = {
    "id", "timestamp", "source", "message", "cause", "action", "observation", "args", "content",
    "tool_call_metadata", "llm_metrics",
}  # fmt: skip


def messages(events: Sequence[Mapping[str, Any]]) -> Conversation:
    made: list[Message] = []
    answers: dict[str, Message] = {}
    stop: str | None = None
    failed: Error | None = None
    tools: list[Any] = []
    for event in events:
        kind = event.get("action") or event.get("observation")
        if "observation" in event and event["observation"] == "error":
            failed = Error(type="error", text=str(event.get("content") or event.get("message")))
        elif kind not in _SILENT:
            failed = None  # the agent went on
        if kind in _ENDS and "action" in event:
            stop = str(kind)
        if kind in _SILENT or ("action" in event and kind == _ASKS):
            continue
        if "action" in event:
            tools = tools or list((event.get("args") or {}).get("tools") or ())
            _add_action(made, answers, event)
        else:
            made.append(_observed(event))
    return Conversation(made, stop or (failed.type if failed else None), failed, tools)


def _add_action(made: list[Message], answers: dict[str, Message], event: Mapping[str, Any]) -> None:
    call = event.get("tool_call_metadata") or {}
    response = call.get("model_response") or {}
    if event.get("source") != "agent" or not response.get("choices"):
        made.append(_acted(event))
        return
    name = str(response.get("id"))
    if name in answers:  # another call of an answer that is there already
        return
    choice = response["choices"][0]
    message = from_chat(choice.get("message") or {"role": "assistant"})
    message.sampled = True
    message.start = seconds(event.get("timestamp"))
    message.stop_reason = choice.get("finish_reason")
    message.meta |= {k: response[k] for k in ("id", "model", "usage") if response.get(k)}
    answers[name] = message
    made.append(message)


def _acted(event: Mapping[str, Any]) -> Message:
    """An action as a message: what was said, or the thought and the call."""
    kind, args = str(event["action"]), dict(event.get("args") or {})
    is_agent = event.get("source") == "agent"
    role = "system" if kind == "system" else ("assistant" if is_agent else "user")
    thought = args.pop("thought", "") or ""
    made = Message(role=role, content=thought or None, start=seconds(event.get("timestamp")))
    if kind in ("message", "system"):
        made.content = _said(args)
        args = {k: v for k, v in args.items() if k not in ("content", "tools", "image_urls")}
        made.meta = {k: v for k, v in args.items() if v not in (None, "", [], {}, False)}
    else:
        made.tool_calls = [ToolCall(id=str(event.get("id")), name=kind, arguments=args)]
    made.sampled = role == "assistant"
    rest = {k: v for k, v in event.items() if k not in _OF_EVENT and v is not None}
    made.meta |= rest
    return made


def _said(args: Mapping[str, Any]) -> str | list[Part]:
    text = str(args.get("content") or "")
    images = args.get("image_urls") or ()
    shown = [Part(type="image", image=str(url)) for url in images]
    return [Part(type="text", text=text), *shown] if shown else text


def _observed(event: Mapping[str, Any]) -> Message:
    """What the environment answered; without a call before it, what it said."""
    call = event.get("tool_call_metadata") or {}
    cause = call.get("tool_call_id") or event.get("cause")
    is_answer = cause is not None and event["observation"] != _ASKS
    extras = {k: v for k, v in (event.get("extras") or {}).items() if v not in (None, "", [], {})}
    rest = {k: v for k, v in event.items() if k not in (*_OF_EVENT, "extras") and v is not None}
    return Message(
        role="tool" if is_answer else "environment",
        name=call.get("function_name") or str(event["observation"]),
        content=event.get("content") or event.get("message"),
        tool_call_id=str(cause) if is_answer else None,
        start=seconds(event.get("timestamp")),
        meta={**rest, **({"extras": extras} if extras else {})},
    )
