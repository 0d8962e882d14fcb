"""The conversations: who reads what, which tool answers, and what is kept of it.

`play` is a generator. It yields a request whenever it is the policy's turn, and gets the request
back once the engine has written that turn. Messages and spans are collected in their order.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from rollscope.model import Error, Message, Part, Span, Tokens, ToolCall
from rollscope.model.normalise import as_error

from .chat import SYSTEM, Chat, Turn
from .engine import LENGTH, Request
from .problems import Problem
from .tools import Service

TURNS = 7
"""Most turns that the policy may take in one conversation."""
LIMITS = {"words": 72, "calculator": 24, "team": 48, "helper": 24, "division": 4000}
"""Most tokens of one turn, by part."""

Play = Generator[Request, Request, None]


@dataclass(eq=False)
class Episode:
    """One rollout being made."""

    problem: Problem
    step: int
    split: str
    group: str
    index: int
    attempt: int = 0
    key: str = ""
    """Its name, unique in the process."""
    messages: list[Message] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    """Message numbers of each conversation, in order: what one training row sees."""
    answer: Turn | None = None
    """The policy's last word, if it came to one."""
    stop_reason: str = "stop"
    calls: int = 0
    failed_calls: int = 0
    start: float = field(default_factory=time.time)
    end: float = 0.0

    def versions(self) -> set[int]:
        """The policy versions that wrote it."""
        return {v for m in self.messages if m.sampled and m.tokens for v in m.tokens.version}

    def written(self) -> int:
        """How many tokens the policy wrote."""
        return sum(len(m.tokens) for m in self.messages if m.sampled and m.tokens)

    @property
    def truncated(self) -> bool:
        return self.stop_reason != "stop"


class World:
    """What surrounds the policy: the chat template and the tool service."""

    def __init__(self, chat: Chat, service: Service, length: int = LENGTH) -> None:
        self.chat = chat
        self.service = service
        self.length = length
        """Longest conversation, in tokens."""

    def play(self, episode: Episode) -> Play:
        """One rollout from prompt to end. Raises ServiceTimeout when a tool does not answer."""
        problem = episode.problem
        turn = yield from self._converse(episode, problem.kind, problem.prompt)
        episode.answer = turn
        episode.end = time.time()

    def _converse(
        self, episode: Episode, part: str, prompt: str, caller: str | None = None
    ) -> Generator[Request, Request, Turn | None]:
        """One conversation, with all the calls it makes; its last turn, or None if cut short."""
        row: list[int] = []
        episode.rows.append(row)
        name = {"team": "lead", "helper": "helper"}.get(part)
        self._hear(episode, row, "system", SYSTEM[part])
        self._hear(episode, row, "user", prompt, name="lead" if caller else None)
        request: Request | None = None
        for _ in range(TURNS):
            ids = self._ids(episode, row)
            request = Request(ids, LIMITS[part], request)
            if request.limit + len(request.prompt) > self.length - 8:
                break
            yield request
            turn, number = self._said(episode, row, request, name)
            if not request.stopped:
                episode.stop_reason = "length"
                return None
            if not turn.call:
                return turn
            asked = next(iter(episode.messages[number].tool_calls), ToolCall())
            span, reply = yield from self._call(episode, part, turn, caller)
            self._hear(episode, row, "tool", reply, name=asked.name, tool_call_id=asked.id)
            span.message = len(episode.messages) - 1
            if part != "helper" and episode.stop_reason == "length":
                return None
        episode.stop_reason = "max_turns"
        return None

    # -- calls -----------------------------------------------------------------------------

    def _call(
        self, episode: Episode, part: str, turn: Turn, caller: str | None
    ) -> Generator[Request, Request, tuple[Span, str]]:
        """Do what a turn asks for; the call, and what came back."""
        episode.calls += 1
        parsed = turn.parsed()
        span = Span(
            name=parsed[0] if parsed else "call",
            id=f"call-{episode.calls}",
            parent=caller,
            inputs=parsed[1] if parsed else turn.text,
            start=time.time(),
        )
        episode.spans.append(span)
        if parsed and parsed[0] == "helper" and part == "team":
            answer = yield from self._converse(episode, "helper", parsed[1], span.id)
            reply = "error: no answer" if answer is None else answer.text
            failed = answer is None
        else:
            reply, failed = self._calculate(episode, part, turn, span)
        span.end = time.time()
        if failed:
            episode.failed_calls += 1
            span.error = Error(kind="tool", type="BadCall", text=reply)
        else:
            span.outputs = reply
        return span, reply

    def _calculate(self, episode: Episode, part: str, turn: Turn, span: Span) -> tuple[str, bool]:
        if part == "words":
            return "error: no tools here", True
        try:
            reply, value = self.service.call(
                turn.text, f"{episode.group} {episode.index} {episode.attempt} {episode.calls}"
            )
        except TimeoutError as error:
            span.end = time.time()
            span.error = as_error(error, "infrastructure")
            raise
        return reply, value is None

    # -- messages --------------------------------------------------------------------------

    def _ids(self, episode: Episode, row: list[int]) -> list[int]:
        return list(itertools.chain.from_iterable(episode.messages[n].tokens.ids for n in row))  # type: ignore[union-attr]

    def _hear(self, episode: Episode, row: list[int], role: str, text: str, **more: Any) -> None:
        """A message that the policy reads."""
        ids, ends = self.chat.given(role, text, role != "system")
        tokens = Tokens(ids, ends, mask=[0] * len(ids))
        message = Message(role=role, content=text, sampled=False, tokens=tokens, **more)
        message.start = message.end = time.time()
        message.meta = self.chat.marks(ids)
        self._add(episode, row, message)

    def _said(
        self, episode: Episode, row: list[int], request: Request, name: str | None
    ) -> tuple[Turn, int]:
        """A message that the policy wrote."""
        turn = self.chat.read(request.ids)
        text, ends = self.chat.tokenizer.decode(request.ids)
        content: str | list[Part] = text
        if turn.thinking is not None:
            content = [Part(type="reasoning", text=turn.thinking)]
            content += [Part(type="text", text=turn.text)] if turn.text else []
        calls: list[ToolCall] = []
        if turn.call and (parsed := turn.parsed()):
            calls = [ToolCall(id=f"call-{episode.calls + 1}", name=parsed[0], arguments=parsed[1])]
        tokens = Tokens(
            request.ids,
            ends,
            logprob=request.logprobs,
            entropy=request.entropies,
            mask=[1] * len(request.ids),
            version=request.versions,
        )
        why = "length" if not request.stopped else "tool_call" if turn.call else "stop"
        message = Message(
            role="assistant",
            content=content,
            name=name,
            tool_calls=calls,
            sampled=True,
            tokens=tokens,
            stop_reason=why,
            start=request.start,
            end=request.end,
            meta=self.chat.marks(request.ids),
        )
        return turn, self._add(episode, row, message)

    def _add(self, episode: Episode, row: list[int], message: Message) -> int:
        number = len(episode.messages)
        parent = row[-1] if row else -1
        if number and parent != number - 1:
            message.parent = parent
        episode.messages.append(message)
        row.append(number)
        return number
