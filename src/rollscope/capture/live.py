"""A rollout that is recorded while it happens.

Each message and each finished span is one line, written once. So the rollout is visible while it
goes on, and a hundred turns cost a hundred times as much as one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextvars import Token
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ..model import Message, Rollout, Span, Tokens, wire
from ..model.chat import as_message, from_chat, to_chat
from ..model.normalise import as_error, plain
from ..model.redact import redact_message, redact_rollout, redact_span
from ..model.repeats import FEWEST, repeat, shared
from .context import Here, enter, here, leave
from .problems import guard, odd, report

if TYPE_CHECKING:
    from .run import Run

_HEAD_FIELDS = frozenset(Rollout.__struct_fields__) - {"messages", "spans", "id"}


class LiveRollout:
    """What `run.rollout(...)` gives: `with run.rollout(step=12, task="q-381") as r: ...`

    Without an active run, or for a rollout that is not sampled, every method does nothing.
    """

    def __init__(self, run: Run | None, head: Rollout) -> None:
        self._run = run
        self._head = head
        self._is_on = run is not None
        self._was_on = self._is_on
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._messages = 0
        self._lost = 0
        self._token: Token[Here] | None = None
        self._branch: list[tuple[int, Any]] = []
        """Numbers of the messages from the root to the newest, and their chat form."""
        self._seen_inputs: dict[tuple[str, str], tuple[str, list[Any]]] = {}

    def __repr__(self) -> str:
        state = "open" if self._is_on else "ended"
        return f"<LiveRollout {self.id or 'not recorded'}: {state}, {self._messages} messages>"

    @property
    def id(self) -> str | None:
        """Its id, to annotate it later; None if it is not recorded."""
        return self._head.id if self._was_on else None

    @property
    def is_recorded(self) -> bool:
        return self._is_on

    # -- what happens in it ------------------------------------------------------------

    @guard("rollout.message")
    def message(
        self, role: str, content: Any = None, *, tokens: Tokens | None = None, **fields: Any
    ) -> int | None:
        """Add a message; `fields` are those of `Message`. Returns its number."""
        if not self._is_on:
            return None
        calls = fields.pop("tool_calls", None) or []
        chat = from_chat({"role": role, "content": content, "tool_calls": calls})
        return self.add(msgspec.structs.replace(chat, tokens=tokens, **fields))

    @guard("rollout.add")
    def add(self, message: Any) -> int | None:
        """Add a message that is made already: a `Message` or a chat message. Returns its number."""
        if not self._is_mine():
            return None
        message = as_message(message)
        with self._lock:
            number = self._put_message(message)
            if number is not None:
                if message.parent is not None:
                    self._cut_branch(message.parent)
                self._branch.append((number, to_chat(message)))
        return number

    @guard("rollout.extend")
    def extend(self, history: Iterable[Any]) -> None:
        """Record a conversation that is handed to a model as a whole, each time.

        Only new messages are written. If it differs from before, a branch begins there.
        """
        if not self._is_mine():
            return
        with self._lock:
            given = list(history)
            known = [chat for _, chat in self._branch]
            first = shared(given, known)
            while first < min(len(given), len(known)) and _is_same(given[first], known[first]):
                at = self._branch[first][0]
                self._branch[first] = (at, plain(given[first], "message", []))
                first += 1  # and the next time it is found equal at once
            parent = None
            if first < len(known):
                parent = self._branch[first - 1][0] if first else -1
                del self._branch[first:]
            for chat in given[first:]:
                message = as_message(chat)
                if parent is not None:
                    message, parent = msgspec.structs.replace(message, parent=parent), None
                number = self._put_message(message)
                if number is not None:
                    self._branch.append((number, plain(chat, "message", [])))

    def _is_mine(self) -> bool:
        """May this process add messages? Asked before the lock, which a fork may leave taken."""
        if self._is_on and self._pid != os.getpid():
            report("rollout", "messages of a rollout come from one process; a fork's are left out")
            return False
        return self._is_on

    def _cut_branch(self, parent: int) -> None:
        """Go back to where a new branch leaves the current one."""
        while self._branch and self._branch[-1][0] != parent:
            self._branch.pop()

    def _put_message(self, message: Message) -> int | None:
        run = self._run
        if run is None:
            return None
        number = self._messages
        self._messages += 1
        self._lost += 1  # taken back when it is in the queue
        if run.streams is not None:
            message = run.streams.of_message(message)
        if run.redactor is not None:
            message = redact_message(message, run.redactor)
        line = wire.more_line(self._id, number, [message], [], odd)
        self._lost -= run.put_piece(line, self._id)
        return number

    @guard("rollout.reward")
    def reward(
        self, value: float | None = None, *, texts: dict[str, str] | None = None, **parts: float
    ) -> None:
        """Set the reward and its parts by name; `texts` are the judge's words for a part."""
        if value is not None:
            self._head.reward = value
        self._head.rewards = {**self._head.rewards, **parts}
        self._head.reward_texts = {**self._head.reward_texts, **(texts or {})}

    @guard("rollout.set")
    def set(self, **fields: Any) -> None:
        """Set fields of the rollout: `r.set(stop_reason="length", truncated=True)`."""
        for name, value in fields.items():
            if name not in _HEAD_FIELDS:
                raise TypeError(f"{name!r} cannot be set: it is not a field of a rollout")
            if name in ("meta", "sampling"):
                value = {**getattr(self._head, name), **value}
            setattr(self._head, name, value)

    def span(self, name: str, **inputs: Any) -> LiveSpan:
        """Time a piece of code: `with r.span("search", query=q) as s: s.outputs = ...`"""
        return LiveSpan(self, name, inputs)

    def lose(self, pieces: int) -> None:
        """For adapters: so many of its messages are not recorded. It says so when it ends."""
        self._lost += pieces

    # -- its life ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        with guard("rollout"):
            self.begin()
            self._token = enter(Here(self, None, here().is_tracing))
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with guard("rollout"):
            if self._token is not None:
                leave(self._token)
            self.end(error)

    def begin(self) -> None:
        """Record that it has begun. `with` does this."""
        run, head = self._run, self._head
        if not self._is_on or run is None:
            return
        if head.start is None:
            head.start = time.time()
        self._is_on = self._was_on = False  # in case that the next line fails
        self._is_on = self._was_on = run.put_head(self._written(), self._id, "open")

    def end(self, error: BaseException | None = None) -> None:
        """Write how it ended. `with` does this; `error` is the user's, and goes on."""
        run, head = self._run, self._head
        if not self._is_on or run is None or self._pid != os.getpid():
            return
        if head.end is None:
            head.end = time.time()
        if error is not None and not isinstance(error, GeneratorExit):
            head.error = head.error or as_error(error)
            head.fate = "failed"
            if type(error).__name__ == "CancelledError":  # asyncio may not be loaded
                head.fate_reason = head.fate_reason or "cancelled"
        if self._lost:
            head.meta = {**head.meta, "pieces_lost": self._lost}
        run.put_head(self._written(), self._id, "close")
        self._is_on = False

    def _written(self) -> Rollout:
        redactor = self._run.redactor if self._run is not None else None
        head = msgspec.structs.replace(self._head, time=time.time())
        return redact_rollout(head, redactor) if redactor is not None else head

    @property
    def _id(self) -> str:
        return self._head.id or ""

    # -- spans -------------------------------------------------------------------------

    def snapshot(self, span: LiveSpan, inputs: dict[str, Any]) -> dict[str, Any]:
        """A copy of a call's arguments. Of a list that continues the last call's, only the rest."""
        return {name: self._argument(span, name, value) for name, value in inputs.items()}

    def _argument(self, span: LiveSpan, name: str, value: Any) -> Any:
        where = f"{span.name}.{name}"
        is_history = type(value) in (list, tuple) and len(value) >= FEWEST
        if not is_history or (self._run is not None and self._run.redactor is not None):
            return plain(value, where, odd)
        before_id, before = self._seen_inputs.get((span.name, name), ("", []))
        first = shared(value, before)
        then = [plain(item, where, odd) for item in value[first:]]
        self._seen_inputs[span.name, name] = (span.id, before[:first] + then)
        return repeat(before_id, first, then) if first >= FEWEST else before[:first] + then

    def put_span(self, span: Span) -> None:
        run = self._run
        if not self._is_on or run is None:
            return
        if run.redactor is not None:
            span = redact_span(span, run.redactor)
        line = wire.more_line(self._id, 0, [], [span], odd)
        is_own = self._pid == os.getpid()
        self._lost += not run.put_piece(line, self._id, is_own=is_own)

    def new_span_id(self) -> str:
        return self._run.new_id() if self._run is not None else ""


class LiveSpan:
    """One timed call inside a live rollout. Spans inside it are its children."""

    def __init__(self, rollout: LiveRollout, name: str, inputs: dict[str, Any]) -> None:
        self.name = name
        self.outputs: Any = None
        """Set it to what the call gave."""
        self.id = ""
        self._rollout = rollout
        self._inputs: Any = inputs
        self._parent: str | None = None
        self._start = 0.0
        self._clock = 0.0
        self._token: Token[Here] | None = None
        self._is_on = rollout.is_recorded

    def begin(self) -> None:
        if not self._is_on:
            return
        place = here()
        self._parent = place.span if place.rollout is self._rollout else None
        self.id = self._rollout.new_span_id()
        self._inputs = self._rollout.snapshot(self, self._inputs) if self._inputs else None
        self._start, self._clock = time.time(), time.perf_counter()

    @property
    def place(self) -> Here:
        """Where code that runs inside the span is."""
        current = here()
        return Here(self._rollout, self.id, current.is_tracing) if self._is_on else current

    def end(self, error: BaseException | None = None) -> None:
        if not self._is_on:
            return
        self._is_on = False
        span = Span(
            name=self.name,
            id=self.id,
            parent=self._parent,
            inputs=self._inputs,
            outputs=plain(self.outputs, f"{self.name}.outputs", odd),
            start=self._start,
            end=self._start + (time.perf_counter() - self._clock),
        )
        if error is not None and not isinstance(error, GeneratorExit):
            span.error = as_error(error)
        self._rollout.put_span(span)

    def __enter__(self) -> Self:
        with guard("span"):
            self.begin()
            self._token = enter(self.place)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with guard("span"):
            if self._token is not None:
                leave(self._token)
            self.end(error)


def _is_same(given: Any, known: Any) -> bool:
    """Do two chat messages say the same? Extra keys do not matter."""
    a, b = as_message(given), as_message(known)
    return (a.role, a.content, a.tool_calls, a.tool_call_id) == (
        b.role, b.content, b.tool_calls, b.tool_call_id,
    )  # fmt: skip
