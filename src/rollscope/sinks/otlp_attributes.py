"""What is told of a call: OpenTelemetry's GenAI conventions, OpenInference's beside them, and
the scalars of the rollout as `rollscope.*`.

Pure: no OpenTelemetry library is needed here. Token ids and streams are never sent, and a text is
cut after `MOST` characters: the link leads to the whole. Without content, only names, ids and
numbers go out, and no text of the policy, a tool, a judge, an error or the trainer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..model import Message, Part, Rollout
from ..model.conversation import by_policy, prompt_size, tool_calls
from ..model.schema import PROSE, scalars
from . import _chat as chat
from ._plain import cut, known, text, without_tokens
from .calls import TracedCall

Value = str | bool | int | float | Sequence[str]
Attributes = dict[str, Value]

MOST = 100_000
"""Characters of one text that are sent."""

_OPERATIONS = {"agent": "invoke_agent", "chat": "chat", "tool": "execute_tool"}
_KINDS = {"agent": "AGENT", "chat": "LLM", "tool": "TOOL", "step": "CHAIN"}
_SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}


class Told:
    """Writes the attributes of one rollout's calls."""

    def __init__(self, rollout: Rollout, *, link: str, provider: str, has_content: bool) -> None:
        self.rollout = rollout
        self.link = link
        self.provider = provider
        self.has_content = has_content
        self.has_contexts = chat.has_contexts(rollout)

    def call(self, call: TracedCall) -> tuple[str, Attributes]:
        """Name and attributes of a call's span."""
        told: Attributes = {"openinference.span.kind": _KINDS[call.kind]}
        if operation := _OPERATIONS.get(call.kind):
            told["gen_ai.operation.name"] = operation
            told["gen_ai.conversation.id"] = str(self.rollout.id)
        {"agent": self._agent, "chat": self._chat, "tool": self._tool, "step": self._step}[
            call.kind
        ](call, told)
        if call.error is not None:
            told["error.type"] = call.error.type or call.error.kind or "_OTHER"
        return (f"{operation} {call.name}" if operation else call.name), told

    def _agent(self, call: TracedCall, told: Attributes) -> None:
        rollout = self.rollout
        told["gen_ai.agent.name"] = call.name
        told["gen_ai.provider.name"] = self.provider
        told |= sampling(rollout.sampling, has_content=self.has_content)
        if rollout.stop_reason is not None:
            told["gen_ai.response.finish_reasons"] = [rollout.stop_reason]
        _usage(told, _tokens(rollout))
        if rollout.group is not None:
            told["session.id"] = rollout.group  # siblings beside each other
        told |= facts(rollout, has_content=self.has_content)
        told["rollscope.link"] = self.link
        told["metadata"] = _json({k.removeprefix("rollscope."): v for k, v in told.items()
                                  if k.startswith("rollscope.")})  # fmt: skip
        first = prompt_size(rollout.messages)
        self._messages(told, rollout.messages[:first], rollout.messages[first:])

    def _chat(self, call: TracedCall, told: Attributes) -> None:
        told["gen_ai.provider.name"] = self.provider
        told |= sampling(self.rollout.sampling, has_content=self.has_content)
        number = call.message
        if number is None:
            return
        message = self.rollout.messages[number]
        if message.stop_reason is not None:
            told["gen_ai.response.finish_reasons"] = [message.stop_reason]
        _usage(told, chat.tokens(self.rollout, number))
        if message.reward is not None:
            told["rollscope.reward"] = message.reward
        told["rollscope.message"] = number
        if not self.has_content:
            return
        seen = chat.prompt(self.rollout, number, self.has_contexts)
        if seen.left_out:
            told["rollscope.prompt"] = f"{seen.left_out} earlier messages: see the root span"
        self._messages(told, seen.messages, [message])
        _open_inference(told, "llm.input_messages", seen.messages)
        _open_inference(told, "llm.output_messages", [message])

    def _tool(self, call: TracedCall, told: Attributes) -> None:
        told["gen_ai.tool.name"] = told["tool.name"] = call.name
        told["gen_ai.tool.type"] = "function"
        tool = call.tool
        if tool is not None and tool.id is not None:
            told["gen_ai.tool.call.id"] = tool.id
        if not self.has_content:
            return
        if tool is not None and tool.arguments is not None:
            arguments = _text(tool.arguments)
            told["gen_ai.tool.call.arguments"] = told["tool.parameters"] = arguments
            told["input.value"] = arguments
        said = _said(self.rollout.messages[call.message]) if call.message is not None else None
        if said is not None:
            told["gen_ai.tool.call.result"] = told["output.value"] = _text(said)

    def _step(self, call: TracedCall, told: Attributes) -> None:
        if call.span is None or not self.has_content:
            return
        for name, value in (("input", call.span.inputs), ("output", call.span.outputs)):
            if value is not None:
                told[f"{name}.value"] = _text(without_tokens(value))
                told[f"{name}.mime_type"] = (
                    "text/plain" if isinstance(value, str) else "application/json"
                )

    def _messages(
        self, told: Attributes, before: Iterable[Message], after: Iterable[Message]
    ) -> None:
        if not self.has_content:
            return
        for name, messages in (("input", before), ("output", after)):
            shown = [genai(message, is_output=name == "output") for message in messages]
            if shown:
                told[f"gen_ai.{name}.messages"] = told[f"{name}.value"] = _json(shown)
                told[f"{name}.mime_type"] = "application/json"


def facts(rollout: Rollout, *, has_content: bool) -> Attributes:
    """What is known about a rollout beside its messages. Missing is left out, never zero."""
    told: Attributes = {"rollscope.id": str(rollout.id)}
    for name, value in scalars(rollout, without=() if has_content else PROSE).items():
        told[f"rollscope.{name}"] = _cut(value) if name in PROSE else value
    for name, reward in rollout.rewards.items():
        told[f"rollscope.rewards.{name}"] = reward
    return told


def sampling(options: Mapping[str, Any], *, has_content: bool) -> Attributes:
    """How the tokens were drawn, under the conventions' names."""
    numbers = {name: v for name, v in options.items() if isinstance(v, (bool, int, float))}
    told: Attributes = {_SAMPLING[name]: v for name, v in numbers.items() if name in _SAMPLING}
    if isinstance(options.get("model"), str):
        told["gen_ai.request.model"] = told["llm.model_name"] = options["model"]
    if shown := without_tokens(options) if has_content else numbers:
        told["llm.invocation_parameters"] = _json(shown)
    return told


def evaluations(rollout: Rollout, *, has_content: bool) -> Iterable[Attributes]:
    """The rewards, as the attributes of `gen_ai.evaluation.result` events."""
    if rollout.reward is not None:
        yield {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": rollout.reward}
    texts = rollout.reward_texts if has_content else {}
    for name in dict.fromkeys([*rollout.rewards, *texts]):
        told: Attributes = {"gen_ai.evaluation.name": name}
        if name in rollout.rewards:
            told["gen_ai.evaluation.score.value"] = rollout.rewards[name]
        if name in texts:
            told["gen_ai.evaluation.explanation"] = _cut(texts[name])
        yield told


def genai(message: Message, *, is_output: bool) -> dict[str, Any]:
    """A message as the GenAI conventions write it."""
    said = _said(message)
    if message.role == "tool":
        parts = [_present(type="tool_call_response", id=message.tool_call_id, response=said)]
    elif isinstance(said, str):
        parts = [{"type": "text", "content": said}]
    else:
        parts = said or []
    for call in tool_calls(message):
        parts.append(_present(type="tool_call", id=call.id, name=call.name,
                              arguments=call.arguments))  # fmt: skip
    told = _present(role=message.role, parts=parts, name=message.name)
    if is_output and message.stop_reason is not None:
        told["finish_reason"] = message.stop_reason
    return told


def _said(message: Message) -> str | list[dict[str, Any]] | None:
    """What a message says, without the tools it calls and without the bytes of pictures."""
    if isinstance(message.content, list):
        return [_part(part) for part in message.content if part.call is None]
    return None if message.content is None else _cut(message.content)


def _part(part: Part) -> dict[str, Any]:
    if part.type in ("text", "reasoning"):
        return {"type": part.type, "content": _cut(part.text or "")}
    if part.image is None:
        body = _present(type=part.type, content=part.text, id=part.id, data=part.data)
        return body if len(_json(body)) <= MOST else {"type": part.type}
    if part.image.startswith("data:"):
        return {"type": "text", "content": f"[image, {len(part.image):,} characters]"}
    return {"type": "uri", "modality": "image", "uri": part.image}


def _open_inference(told: Attributes, name: str, messages: Sequence[Message]) -> None:
    for i, message in enumerate(messages):
        prefix = f"{name}.{i}.message"
        told[f"{prefix}.role"] = message.role
        said = _said(message)
        if isinstance(said, list):
            for j, part in enumerate(said):
                _open_inference_part(told, f"{prefix}.contents.{j}.message_content", part)
        elif said is not None:
            told[f"{prefix}.content"] = said
        if message.tool_call_id is not None:
            told[f"{prefix}.tool_call_id"] = message.tool_call_id
        for j, call in enumerate(tool_calls(message)):
            tool = f"{prefix}.tool_calls.{j}.tool_call"
            if call.id is not None:
                told[f"{tool}.id"] = call.id
            told[f"{tool}.function.name"] = call.name or ""
            if call.arguments is not None:
                told[f"{tool}.function.arguments"] = _text(call.arguments)


def _open_inference_part(told: Attributes, name: str, part: dict[str, Any]) -> None:
    if part["type"] == "uri":
        told[f"{name}.type"] = "image"
        told[f"{name}.image.image.url"] = part["uri"]
    else:
        told[f"{name}.type"] = part["type"]
        told[f"{name}.text"] = _text(part.get("content", part))


def _tokens(rollout: Rollout) -> tuple[int, int] | None:
    """Tokens that the policy was given and that it wrote in all, if all of them are known."""
    counts = [0, 0]
    for message in rollout.messages:
        if message.tokens is None:
            return None
        counts[by_policy(message)] += len(message.tokens)
    return counts[0], counts[1]


def _usage(told: Attributes, counts: tuple[int, int] | None) -> None:
    if counts is None:
        return
    prompt, answer = counts
    told["gen_ai.usage.input_tokens"] = told["llm.token_count.prompt"] = prompt
    told["gen_ai.usage.output_tokens"] = told["llm.token_count.completion"] = answer
    told["llm.token_count.total"] = prompt + answer


def _text(value: Any) -> str:
    return _cut(value if isinstance(value, str) else _json(value))


def _cut(value: str) -> str:
    return cut(text(value), MOST)


def _json(value: Any) -> str:
    return text(json.dumps(value, ensure_ascii=False, default=str))


def _present(**values: Any) -> dict[str, Any]:
    return known(values)
