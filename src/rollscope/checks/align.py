"""Where do two rollouts part?

One alignment serves `rollscope diff`, the HTTP API, the compare page and notebooks. Messages are
paired turn by turn: equal ones first, then those between two equal ones, in order and role with
role. Inside a pair that differs, words are compared. Nothing is guessed from position alone; a
message without a partner stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from ..model import Message, Rollout, show
from ..model.chat import as_text
from ..model.conversation import tool_calls

_WORDS = re.compile(r"\s+|\w+|[^\w\s]", re.UNICODE)

_MAX_CELLS = 4_000_000
"""A comparison of n words with m words costs up to n·m; beyond this, lines are compared
first and words only inside lines that differ (20 ms against 3 s for 8,000 words)."""

Kind = Literal["same", "only_a", "only_b"]


class Words(msgspec.Struct, frozen=True):
    """A run of text that both have, or only one."""

    kind: Kind
    text: str


class Pair(msgspec.Struct, frozen=True):
    """One row of the comparison. A side that has no such message is None."""

    a: int | None
    b: int | None
    same: bool
    pieces: list[Words]
    """Word by word, only when both are there and differ."""


class Divergence(msgspec.Struct, frozen=True):
    """The first place where the two are not the same."""

    pair: int
    """Which row."""
    a: int | None
    b: int | None
    offset: int
    """Characters of the message's text that are still the same."""


class Difference(msgspec.Struct, frozen=True):
    """A field of the rollouts that differs. None: not known there."""

    name: str
    a: Any
    b: Any


class Alignment(msgspec.Struct, frozen=True):
    """How two rollouts lie beside each other."""

    pairs: list[Pair]
    divergence: Divergence | None
    """None: every message is the same."""
    fields: list[Difference]

    def _repr_html_(self) -> str:
        """What differs, side by side; equal turns are left out."""
        rows = []
        for number, pair in enumerate(self.pairs):
            if pair.same:
                continue
            sides = [
                [(p.kind == "same", p.text) for p in pair.pieces if p.kind in ("same", own)]
                for own in ("only_a", "only_b")
            ]
            where = (
                " (first divergence)" if self.divergence and self.divergence.pair == number else ""
            )
            title = f"turn {number}: message {pair.a} and message {pair.b}{where}"
            rows.append((title, sides[0], sides[1]))
        listed = show.table(("differs", "a", "b"), ((f.name, f.a, f.b) for f in self.fields))
        return show.side_by_side(rows) + listed


def align(a: Rollout, b: Rollout) -> Alignment:
    """Lay two rollouts beside each other.

    >>> say = lambda text: [Message(role="assistant", content=text)]
    >>> found = align(Rollout(messages=say("2 + 2 = 4")), Rollout(messages=say("2 + 2 = 5")))
    >>> found.divergence.offset
    8
    """
    pairs = [_pair(a, b, i, j) for i, j in _partners(a.messages, b.messages)]
    return Alignment(pairs, _divergence(a, b, pairs), field_differences(a, b))


def text_of(message: Message) -> str:
    """What a message says, tool calls included, as one text to compare."""
    lines = [_parted(message)]
    for call in tool_calls(message):
        lines.append(f"→ {call.name or ''}({as_text(call.arguments)})")
    return "\n".join(line for line in lines if line)


def _parted(message: Message) -> str:
    """Its text; where thinking ends and an answer begins, the answer has a line of its own."""
    if not isinstance(message.content, list):
        return message.content or ""
    texts: list[str] = []
    last = None
    for part in message.content:
        if part.text:
            texts.append("\n" + part.text if last not in (None, part.type) else part.text)
            last = part.type
    return "".join(texts)


def field_differences(a: Rollout, b: Rollout) -> list[Difference]:
    """Fields of outcome and identity that differ, reward parts and meta keys one by one."""
    skipped = {"messages", "spans", "id", "key", "time", "start", "end"}
    found = []
    for name in a.__struct_fields__:
        if name in skipped:
            continue
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, dict) and isinstance(y, dict):
            found += [
                Difference(f"{name}.{key}", x.get(key), y.get(key))
                for key in sorted({*x, *y})
                if not _equal(x.get(key), y.get(key))
            ]
        elif not _equal(x, y):
            found.append(Difference(name, x, y))
    return found


def word_diff(a: str, b: str) -> list[Words]:
    """The equal and the different words, in order. Joined, the pieces give both texts."""
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    start = _common_prefix(words_a, words_b)
    end = _common_prefix(words_a[start:][::-1], words_b[start:][::-1])
    pieces = [Words("same", "".join(words_a[:start]))]
    pieces += _middle_diff(words_a[start : len(words_a) - end], words_b[start : len(words_b) - end])
    pieces.append(Words("same", "".join(words_a[len(words_a) - end :])))
    return list(_merged(pieces))


# -- pairing ---------------------------------------------------------------------------


def _partners(
    a: Sequence[Message], b: Sequence[Message]
) -> Iterator[tuple[int | None, int | None]]:
    keys_a, keys_b = [_key(m) for m in a], [_key(m) for m in b]
    matcher = SequenceMatcher(None, keys_a, keys_b, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(range(i1, i2), range(j1, j2), strict=True)
        else:
            yield from _between(a, b, range(i1, i2), range(j1, j2))


def _between(
    a: Sequence[Message], b: Sequence[Message], left: range, right: range
) -> Iterator[tuple[int | None, int | None]]:
    """Pair the messages between two equal ones, in order and role with role."""
    roles = SequenceMatcher(
        None,
        [(a[i].role, a[i].name) for i in left],
        [(b[j].role, b[j].name) for j in right],
        autojunk=False,
    )
    for tag, i1, i2, j1, j2 in roles.get_opcodes():
        if tag == "equal":
            yield from zip(left[i1:i2], right[j1:j2], strict=True)
        else:
            yield from ((i, None) for i in left[i1:i2])
            yield from ((None, j) for j in right[j1:j2])


def _key(message: Message) -> tuple[Any, ...]:
    return (message.role, message.name, text_of(message))


def _pair(a: Rollout, b: Rollout, i: int | None, j: int | None) -> Pair:
    if i is None or j is None:
        return Pair(i, j, False, [])
    x, y = a.messages[i], b.messages[j]
    if _key(x) == _key(y):
        return Pair(i, j, True, [])
    return Pair(i, j, False, word_diff(text_of(x), text_of(y)))


def _divergence(a: Rollout, b: Rollout, pairs: list[Pair]) -> Divergence | None:
    for number, pair in enumerate(pairs):
        if pair.same:
            continue
        offset = 0
        if pair.a is not None and pair.b is not None:
            offset = _common_prefix(text_of(a.messages[pair.a]), text_of(b.messages[pair.b]))
        return Divergence(number, pair.a, pair.b, offset)
    return None


# -- words -----------------------------------------------------------------------------


def _middle_diff(a: list[str], b: list[str]) -> list[Words]:
    if len(a) * len(b) <= _MAX_CELLS:
        return _sequence_diff(a, b)
    lines_a, lines_b = ("".join(words).splitlines(True) for words in (a, b))
    pieces = []
    matcher = SequenceMatcher(None, lines_a, lines_b)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        text_a, text_b = "".join(lines_a[i1:i2]), "".join(lines_b[j1:j2])
        words_a, words_b = _WORDS.findall(text_a), _WORDS.findall(text_b)
        if tag == "equal":
            pieces.append(Words("same", text_a))
        elif len(words_a) * len(words_b) <= _MAX_CELLS:
            pieces += _sequence_diff(words_a, words_b)
        else:
            pieces += [Words("only_a", text_a), Words("only_b", text_b)]
    return pieces


def _sequence_diff(a: list[str], b: list[str]) -> list[Words]:
    pieces = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces.append(Words("same", "".join(a[i1:i2])))
        else:
            pieces += [Words("only_a", "".join(a[i1:i2])), Words("only_b", "".join(b[j1:j2]))]
    return pieces


def _merged(pieces: list[Words]) -> Iterator[Words]:
    last: Words | None = None
    for piece in pieces:
        if not piece.text:
            continue
        if last is not None and last.kind == piece.kind:
            last = Words(last.kind, last.text + piece.text)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the shared beginning, found by halving: no loop over items."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _equal(x: Any, y: Any) -> bool:
    return bool(x == y or (x != x and y != y))
