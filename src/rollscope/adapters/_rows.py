"""Several training rows of one rollout to one tree of messages.

Some trainers cut a rollout into one row for each turn, or for each call of the model. The prompt
of each row repeats the conversation so far. `join` stores every token once:

- Rows make one branch if each begins with the row before it.
- A row that rewrites its history (thinking stripped, context summarised) branches off after
  the last message that it still shares with an earlier branch.

For each row, `join` also says where its response lies among the rollout's tokens. Values that
the trainer computes for the row later, such as advantages, are put there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..model import Message
from ..model.conversation import WROTE
from ._messages import split


class TrainingRow(NamedTuple):
    """One training row: `ids` are the prompt, `prompt` tokens long, and the response."""

    ids: list[int]
    prompt: int
    wrote: Sequence[Any] | None
    """For each token of the response: did the policy write it? None: nobody can tell."""
    streams: Mapping[str, Sequence[Any] | None]
    """Streams of the response."""


class Joined(NamedTuple):
    messages: list[Message]
    responses: list[tuple[int, int]]
    """For each row, where its response begins among all tokens of `messages`, and its length."""
    total: int
    """Tokens of all messages."""
    last: list[int]
    """For each row, the number of the message that holds the policy's last token of the row."""


class _Branch:
    """Rows that continue each other, as one row."""

    def __init__(self, row: TrainingRow, names: list[str]) -> None:
        self.ids: list[int] = list(row.ids[: row.prompt])
        self.prompt = row.prompt
        self.wrote: list[Any] | None = [False] * row.prompt
        self.streams: dict[str, list[Any]] = {name: [None] * row.prompt for name in names}
        self.responses: list[tuple[int, int]] = []
        self.written: list[int] = []
        """For each row, its last token that the policy wrote."""
        self._append(row)

    def takes(self, row: TrainingRow) -> bool:
        return len(self.ids) <= row.prompt and row.ids[: len(self.ids)] == self.ids

    def add(self, row: TrainingRow) -> None:
        given = row.prompt - len(self.ids)
        self.ids += row.ids[len(self.ids) : row.prompt]
        if self.wrote is not None:
            self.wrote += [False] * given
        for values in self.streams.values():
            values += [None] * given
        self._append(row)

    def _append(self, row: TrainingRow) -> None:
        length = len(row.ids) - row.prompt
        self.responses.append((row.prompt, length))
        wrote = row.wrote if row.wrote is not None and len(row.wrote) == length else None
        end = max(length - 1, 0)
        last = next((i for i in range(length - 1, -1, -1) if wrote[i]), end) if wrote else end
        self.written.append(row.prompt + last)
        self.ids += row.ids[row.prompt :]
        if wrote is None:
            self.wrote = None
        elif self.wrote is not None:
            self.wrote += wrote
        for name, values in self.streams.items():
            own = row.streams.get(name)
            values += own if own is not None and len(own) == length else [None] * length


def join(
    rows: Sequence[TrainingRow],
    *,
    tokenizer: Any = None,
    chat: Sequence[Mapping[str, Any]] | None = None,
    problems: list[str] | None = None,
) -> Joined:
    """The messages of a rollout that was cut into `rows`, in order."""
    problems = problems if problems is not None else []
    names = sorted({name for row in rows for name, v in row.streams.items() if v is not None})
    for row in rows:
        _report_lengths(row, problems)
    branches: list[_Branch] = []
    for row in rows:
        if branches and branches[-1].takes(row):
            branches[-1].add(row)
        else:
            branches.append(_Branch(row, names))
    messages: list[Message] = []
    paths: list[list[int]] = []
    responses: list[tuple[int, int]] = []
    last: list[int] = []
    for branch in branches:
        new = _split(branch, tokenizer, chat, problems)
        path, shared = _shared(messages, paths, new, branch.prompt)
        first = len(messages)
        offset = _tokens(messages) - shared
        for n, message in enumerate(new[len(path) :]):
            if n == 0 and first:
                parent = path[-1] if path else -1
                message = msgspec.structs.replace(message, parent=parent)
            messages.append(message)
        path = path + list(range(first, len(messages)))
        paths.append(path)
        responses += [(offset + begin, length) for begin, length in branch.responses]
        last += [_holder(messages, path, token) for token in branch.written]
    return Joined(messages, responses, _tokens(messages), last)


def _split(
    branch: _Branch,
    tokenizer: Any,
    chat: Sequence[Mapping[str, Any]] | None,
    problems: list[str],
) -> list[Message]:
    messages = split(
        branch.ids,
        tokenizer=tokenizer,
        sampled=branch.wrote,
        streams=branch.streams,
        chat=chat,
        problems=problems,
    )
    if branch.wrote is None:
        # The mask cannot tell, the template's headers can: an assistant's message that
        # reaches beyond the prompt was written by the policy.
        at = 0
        for message in messages:
            begin, at = at, at + len(message.tokens or ())
            if at <= branch.prompt:
                message.sampled = False
            elif message.role == "assistant":
                message.sampled = True
                if begin < branch.prompt:
                    message.meta[WROTE] = [branch.prompt - begin, at - begin]
    return messages


def _shared(
    messages: list[Message], paths: list[list[int]], new: list[Message], prompt: int
) -> tuple[list[int], int]:
    """The longest part of an earlier branch that `new` repeats in its prompt: message numbers, and
    the tokens of these messages."""
    best: list[int] = []
    most = 0
    for path in paths:
        way: list[int] = []
        tokens = 0
        for number, message in zip(path, new, strict=False):
            ids = message.tokens.ids if message.tokens is not None else None
            old = messages[number].tokens
            if old is None or ids is None or old.ids != ids or tokens + len(ids) > prompt:
                break
            way.append(number)
            tokens += len(ids)
        if len(way) > len(best):
            best, most = way, tokens
    return best, most


def _holder(messages: list[Message], path: list[int], token: int) -> int:
    """The message of a branch that holds this token of it."""
    at = 0
    for number in path:
        at += len(messages[number].tokens or ())
        if token < at:
            return number
    return path[-1]


def _tokens(messages: list[Message]) -> int:
    return sum(len(message.tokens or ()) for message in messages)


def _report_lengths(row: TrainingRow, problems: list[str]) -> None:
    length = len(row.ids) - row.prompt
    for name, values in {"mask": row.wrote, **row.streams}.items():
        if values is not None and len(values) != length:
            problems.append(f"{name}: expected {length} values, found {len(values)}; left out")
