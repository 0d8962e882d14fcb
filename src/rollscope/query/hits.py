"""Where the text terms of a query stand in one rollout: what is marked when it is read.

The engine's RE2 looks for patterns, because its time grows only linearly with the text. In Python's
`re`, a pattern such as `/(x+x+)+y/` takes for ever on a line of x's and blocks the whole process
meanwhile.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rollscope.model import Rollout, conversation
from rollscope.model.chat import as_text
from rollscope.model.tokens import to_list

from .match import TextTerm
from .values import Text

if TYPE_CHECKING:
    from .store import Store

SAID = 300
"""Characters of a find that are told with it."""


class Said(NamedTuple):
    """One text of a message: what it says, or the arguments of a tool that it calls."""

    message: int
    where: str
    """`text` or `tool_calls`."""
    role: str
    text: str


class Hit(msgspec.Struct, frozen=True):
    """One match of the query's text terms, in characters of the message's text."""

    message: int
    start: int
    end: int
    where: str = "text"
    """`text`, or `tool_calls`: then the numbers count in the arguments as text."""
    said: str | None = None
    """What a pattern found, so that nobody else needs to look for it; null if it is long, and for
    words, which are known."""
    token: int | None = None
    """The token of the message that it begins in; null where tokens have no places in the text."""


def hits(
    store: Store, rollout: Rollout, terms: Iterable[TextTerm], most: int
) -> list[tuple[Said, Hit]]:
    """In the order of messages, each with the text that it stands in; no more than `most`."""
    said = list(_said(rollout))
    found: dict[tuple[Said, int, int], str | None] = {}
    for term in terms:
        if term.test is None or not term.test.text:
            continue
        mine = [one for one in said if term.role in (None, one.role)]
        bounds = _bounds(store, term.test, [one.text for one in mine], most)
        here = ((one, *span) for one, of in zip(mine, bounds, strict=True) for span in of)
        for one, start, end in islice(here, most):
            is_told = term.test.kind == "regex" and end - start <= SAID
            found[one, start, end] = one.text[start:end] if is_told else None
    places = {one: place for place, one in reversed(list(enumerate(said)))}
    in_order = sorted(found.items(), key=lambda hit: (places[hit[0][0]], *hit[0][1:]))[:most]
    token = _TokenAt(rollout)
    return [
        (one, Hit(one.message, start, end, one.where, words, token(one, start)))
        for (one, start, end), words in in_order
    ]


class _TokenAt:
    """Tells in which token of a message a character lies."""

    def __init__(self, rollout: Rollout) -> None:
        self._messages = rollout.messages
        self._ends: dict[int, list[int]] = {}

    def __call__(self, said: Said, char: int) -> int | None:
        tokens = self._messages[said.message].tokens
        if said.where != "text" or tokens is None or tokens.ends is None:
            return None
        if said.message not in self._ends:
            self._ends[said.message] = to_list(tokens.ends, True)
        ends = self._ends[said.message]
        at = bisect_right(ends, char)
        return at if at < len(ends) else None


def _said(rollout: Rollout) -> Iterator[Said]:
    for n, message in enumerate(rollout.messages):
        yield Said(n, "text", message.role, conversation.text(message))
        for call in conversation.tool_calls(message):
            told = call.arguments
            if told is not None:
                yield Said(n, "tool_calls", message.role, as_text(told))


_Bounds = tuple[int, int]
"""Where a find begins and ends, in characters of its text."""

_PRIVATE = range(0xE000, 0xF900)
"""Characters that stand for nothing: two that no text holds mark begin and end of a find."""


def _bounds(store: Store, test: Text, texts: Sequence[str], most: int) -> Iterator[list[_Bounds]]:
    """For each text, begin and end of every find that is not empty; at most so many of each."""
    if test.kind == "regex":
        yield from (list(islice(found, most)) for found in _by_engine(store, test.text, texts))
        return
    pattern = re.compile(re.escape(test.text), re.IGNORECASE if test.kind == "fold" else 0)
    for text in texts:
        yield [match.span() for match in islice(pattern.finditer(text), most) if match[0]]


def _by_engine(store: Store, pattern: str, texts: Sequence[str]) -> Iterator[Iterator[_Bounds]]:
    used = set().union(*texts)
    free = [char for char in map(chr, _PRIVATE) if char not in used][:2]
    if len(free) < 2:
        return (iter(()) for _ in texts)
    ((marked,),) = store.sql(
        "SELECT list_transform(?::VARCHAR[], lambda t: regexp_replace(t, ?, ?, 'g'))",
        [list(texts), pattern, f"{free[0]}\\0{free[1]}"],
    ).fetchall()
    return (_unmarked(text, *free) for text in marked)


def _unmarked(text: str, begin: str, end: str) -> Iterator[_Bounds]:
    """The finds in a text that has two characters more for each of them."""
    at = extra = 0
    while (start := text.find(begin, at)) >= 0:
        at = text.find(end, start)
        if at > start + 1:
            yield start - extra, at - extra - 1
        extra += 2
