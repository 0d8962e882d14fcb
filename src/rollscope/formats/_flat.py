"""A flat row of token ids laid over messages whose texts are known.

Files hold the texts of a conversation and one row of ids with a mask, but no tokenizer and no
place where one message ends. Where the mask and the messages have the same turns, each message
gets its tokens; where they have not, nobody knows, and no message gets any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ..model import Message, Tokens


class _Run(NamedTuple):
    """Tokens `begin` to `end` (not included)."""

    begin: int
    end: int
    is_ours: bool


def lay(
    messages: list[Message],
    ids: Sequence[int],
    ours: Sequence[Any],
    streams: Mapping[str, Sequence[Any]],
) -> str | None:
    """Give the messages their tokens; or say why it is not known which are whose.

    `ours`: did the policy write this token? Streams count only there: elsewhere they hold what
    fills the row. The ids of several messages in a row that it did not write lie on the first of
    them, which says so in `meta["tokens_of"]`.
    """
    odd = [name for name, values in streams.items() if len(values) != len(ids)]
    if len(ours) != len(ids) or odd:
        return f"{', '.join(odd) or 'the mask'} has not one value for each of {len(ids)} tokens"
    runs = _runs(ours)
    spans = _spans(messages, runs)
    if spans is None:
        answers = sum(run.is_ours for run in runs)
        return f"the mask has {answers} answers, the conversation other turns: tokens left out"
    for run, (first, stop) in zip(runs, spans, strict=True):
        part = slice(run.begin, run.end)
        made = {"mask": [int(run.is_ours)] * (run.end - run.begin)}
        if run.is_ours:
            made |= {name: list(row[part]) for name, row in streams.items()}
        _add(messages[first], list(ids[part]), made)
        if stop - first > 1:
            messages[first].meta["tokens_of"] = list(range(first, stop))
    return None


def _add(message: Message, ids: list[int], streams: dict[str, list[Any]]) -> None:
    """Its tokens; or, behind those that it has, the template's marks."""
    if message.tokens is not None:
        marks: list[Any] = [None] * len(ids)
        streams = {
            name: [*values, *streams.get(name, marks)]
            for name, values in message.tokens.streams.items()
        }
        ids = [*message.tokens.ids, *ids]
    message.tokens = Tokens(ids, None, streams)


def _runs(ours: Sequence[Any]) -> list[_Run]:
    runs, at = [], 0
    for is_ours, row in groupby(ours, bool):
        length = sum(1 for _ in row)
        runs.append(_Run(at, at + length, is_ours))
        at += length
    return runs


def _spans(messages: list[Message], runs: list[_Run]) -> list[tuple[int, int]] | None:
    """The messages (first, and the one behind the last) that each run of tokens is of."""
    count = sum(run.is_ours for run in runs)
    written = [n for n, message in enumerate(messages) if message.sampled]
    if count == 1 and messages:
        written = [len(messages) - 1]  # only the last turn is trained on, whoever spoke
    if not count or count != len(written):
        return None
    spans: list[tuple[int, int]] = []
    at, answers = 0, iter(written)
    for number, run in enumerate(runs):
        if run.is_ours:
            at = next(answers)
            spans.append((at, at + 1))
            at += 1
        elif number < len(runs) - 1:
            stop = written[sum(r.is_ours for r in runs[:number])]
            if stop <= at:
                return None
            spans.append((at, stop))
        else:  # behind the last answer: another message, or only the template's marks
            spans.append((at, len(messages)) if at < len(messages) else (at - 1, at))
    return spans
