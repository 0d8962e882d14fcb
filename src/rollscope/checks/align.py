"""Where do two rollouts part?

One alignment serves `rollscope diff`, the HTTP API, the compare page and notebooks. Messages are
paired turn by turn: equal ones first, then those between two equal ones, in order and role with
role. Inside a pair that differs, lines are compared, then sentences, then words. Nothing is guessed
from position alone; a message without a partner stands alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from ..model import Message, Rollout, show
from ..model.chat import as_text
from ..model.conversation import tool_calls
from .matching import Block, Steps, common_prefix, matching

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_SENTENCES = re.compile(r"[^.!?\n]*[.!?\n]+\s*|[^.!?\n]+")
_WORDS = re.compile(r"\s+|\w+|[^\w\s]", re.UNICODE)

_SHORT = 4_000
"""Texts of fewer characters are compared by words at once."""

_ENOUGH = 60
"""Two passages of more words than this are compared by words only if they share a quarter of them:
else words that happen to be the same are marked as if they said the same."""

_BLOB = 1_000
"""A word of more characters is no word: what is compared is where it begins and ends alike."""

STEPS = 1_000_000
"""What one comparison may cost, see `checks.matching` (half a second)."""

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
    rough: bool = False
    """The texts are so long and so different that not all of their words were compared."""


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


def align(a: Rollout, b: Rollout, steps: int = STEPS) -> Alignment:
    """Lay two rollouts beside each other.

    >>> say = lambda text: [Message(role="assistant", content=text)]
    >>> found = align(Rollout(messages=say("2 + 2 = 4")), Rollout(messages=say("2 + 2 = 5")))
    >>> found.divergence.offset
    8
    """
    left = Steps(steps)
    said = [[text_of(m) for m in rollout.messages] for rollout in (a, b)]
    keys = [
        [(m.role, m.name, text) for m, text in zip(rollout.messages, texts, strict=True)]
        for rollout, texts in zip((a, b), said, strict=True)
    ]
    partners = _partners(keys[0], keys[1], Steps(steps))
    pairs = [_pair(keys[0], keys[1], i, j, left) for i, j in partners]
    return Alignment(pairs, _divergence(said[0], said[1], pairs), field_differences(a, b))


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


def word_diff(a: str, b: str, steps: Steps | None = None) -> list[Words]:
    """The equal and the different words, in order. Joined, the pieces give both texts."""
    by = _BY[-1:] if len(a) + len(b) <= _SHORT else _BY
    return list(_merged(_differing(a, b, by, steps or Steps(STEPS))))


# -- pairing ---------------------------------------------------------------------------

_Key = tuple[str, str | None, str]
"""Role, name and text of a message."""


def _partners(
    a: Sequence[_Key], b: Sequence[_Key], steps: Steps
) -> Iterator[tuple[int | None, int | None]]:
    for x, y, equal in _laid_out(matching(a, b, steps), len(a), len(b)):
        if equal:
            yield from zip(x, y, strict=True)
        else:
            yield from _between(a, b, x, y, steps)


def _between(
    a: Sequence[_Key], b: Sequence[_Key], left: range, right: range, steps: Steps
) -> Iterator[tuple[int | None, int | None]]:
    """Pair the messages between two equal ones, in order and role with role."""
    roles = matching([a[i][:2] for i in left], [b[j][:2] for j in right], steps)
    for x, y, equal in _laid_out(roles, len(left), len(right)):
        mine, theirs = left[x.start : x.stop], right[y.start : y.stop]
        if equal:
            yield from zip(mine, theirs, strict=True)
        else:
            yield from ((i, None) for i in mine)
            yield from ((None, j) for j in theirs)


def _laid_out(blocks: Iterator[Block], n: int, m: int) -> Iterator[tuple[range, range, bool]]:
    """Equal blocks and what lies between them, in order."""
    i = j = 0
    for x, y, size in (*blocks, (n, m, 0)):
        if i < x or j < y:
            yield range(i, x), range(j, y), False
        if size:
            yield range(x, x + size), range(y, y + size), True
        i, j = x + size, y + size


def _pair(a: Sequence[_Key], b: Sequence[_Key], i: int | None, j: int | None, steps: Steps) -> Pair:
    if i is None or j is None:
        return Pair(i, j, False, [])
    if a[i] == b[j]:
        return Pair(i, j, True, [])
    own = Steps(steps.left)
    pieces = word_diff(a[i][2], b[j][2], own)
    steps.left = own.left
    return Pair(i, j, False, pieces, own.ran_out)


def _divergence(a: list[str], b: list[str], pairs: list[Pair]) -> Divergence | None:
    for number, pair in enumerate(pairs):
        if pair.same:
            continue
        offset = 0
        if pair.a is not None and pair.b is not None:
            offset = common_prefix(a[pair.a], b[pair.b])
        return Divergence(number, pair.a, pair.b, offset)
    return None


# -- words -----------------------------------------------------------------------------

_BY = (_LINES, _SENTENCES, _WORDS)


def _differing(a: str, b: str, by: tuple[re.Pattern[str], ...], steps: Steps) -> Iterator[Words]:
    """Compared by lines; what differs, by sentences; and what differs there, by words."""
    units = by[0].findall(a), by[0].findall(b)
    last = by[0] is _WORDS
    enough = Steps(0) if last and not _alike(*units) else steps
    for x, y, equal in _laid_out(matching(*units, enough), len(units[0]), len(units[1])):
        mine = "".join(units[0][x.start : x.stop])
        theirs = "".join(units[1][y.start : y.stop])
        if equal:
            yield Words("same", mine)
        elif mine and theirs and not last:
            yield from _differing(mine, theirs, by[1:], steps)
        elif min(len(mine), len(theirs)) > _BLOB * max(len(x), len(y)):
            yield from _blobs(mine, theirs)
        else:
            yield from (Words("only_a", mine), Words("only_b", theirs))


def _blobs(a: str, b: str) -> Iterator[Words]:
    """Where they begin and end alike."""
    for x, y, equal in _laid_out(matching(a, b, Steps(0)), len(a), len(b)):
        if equal:
            yield Words("same", a[x.start : x.stop])
        else:
            yield from (Words("only_a", a[x.start : x.stop]), Words("only_b", b[y.start : y.stop]))


def _alike(a: list[str], b: list[str]) -> bool:
    """Do they share enough words to be compared word by word?"""
    words = [Counter(word for word in side if not word.isspace()) for side in (a, b)]
    count = min(side.total() for side in words)
    return count <= _ENOUGH or (words[0] & words[1]).total() * 4 >= count


def _merged(pieces: Iterator[Words]) -> Iterator[Words]:
    """Runs as long as can be. A space between two words that both differ is no text in common."""
    runs: list[list[str]] = []  # what is the same, then what only one side has
    for piece in pieces:
        if piece.kind == "same":
            if not runs or runs[-1][1] or runs[-1][2]:
                runs.append(["", "", ""])
            runs[-1][0] += piece.text
        elif piece.text:
            if not runs:
                runs.append(["", "", ""])
            runs[-1][1 if piece.kind == "only_a" else 2] += piece.text
    joined: list[list[str]] = []
    for same, mine, theirs in runs:
        last = joined[-1] if joined else ["", "", ""]
        if same == " " and all((mine, theirs, last[1], last[2])):
            last[1] += same + mine
            last[2] += same + theirs
        else:
            joined.append([same, mine, theirs])
    kinds: tuple[Kind, ...] = ("same", "only_a", "only_b")
    for run in joined:
        for kind, text in zip(kinds, run, strict=True):
            if text:
                yield Words(kind, text)


def _equal(x: Any, y: Any) -> bool:
    return bool(x == y or (x != x and y != y))
