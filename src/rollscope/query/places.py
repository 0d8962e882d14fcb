"""Where a text term stands in texts, as the engine finds it.

The engine's RE2 looks for patterns, because its time grows only linearly with the text. In Python's
`re`, a pattern such as `/(x+x+)+y/` takes for ever on a line of x's and blocks the whole process
meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from .values import Text

if TYPE_CHECKING:
    from .store import Store

Bounds = tuple[int, int]
"""Where a find begins and ends, in characters of its text."""

_PRIVATE = range(0xE000, 0xF900)
"""Characters that stand for nothing: two that no text holds mark begin and end of a find."""


def places(store: Store, test: Text, texts: Sequence[str], most: int) -> Iterator[list[Bounds]]:
    """For each text, begin and end of every find that is not empty; at most so many of each."""
    if test.kind == "regex":
        yield from (list(islice(found, most)) for found in _by_engine(store, test.text, texts))
        return
    pattern = re.compile(re.escape(test.text), re.IGNORECASE if test.kind == "fold" else 0)
    for text in texts:
        yield [match.span() for match in islice(pattern.finditer(text), most) if match[0]]


def _by_engine(store: Store, pattern: str, texts: Sequence[str]) -> Iterator[Iterator[Bounds]]:
    used = set().union(*texts)
    free = [char for char in map(chr, _PRIVATE) if char not in used][:2]
    if len(free) < 2:
        return (iter(()) for _ in texts)
    ((marked,),) = store.sql(
        "SELECT list_transform(?::VARCHAR[], lambda t: regexp_replace(t, ?, ?, 'g'))",
        [list(texts), pattern, f"{free[0]}\\0{free[1]}"],
    ).fetchall()
    return (_unmarked(text, *free) for text in marked)


def _unmarked(text: str, begin: str, end: str) -> Iterator[Bounds]:
    """The finds in a text that has two characters more for each of them."""
    at = extra = 0
    while (start := text.find(begin, at)) >= 0:
        at = text.find(end, start)
        if at > start + 1:
            yield start - extra, at - extra - 1
        extra += 2
