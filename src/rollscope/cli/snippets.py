"""The words around what a query found, for `grep`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from . import render

if TYPE_CHECKING:
    from ..query import Query, Store

MARGIN = "    "


def snippet(store: Store, query: Query, id: str, width: int) -> Text | None:
    """The first hit of a query's words in a rollout, on one line of at most `width` characters.
    None if the query has no words."""
    from ..query.hits import hits

    found = hits(store, store.get(id), query.terms, 1) if query.terms else []
    for said, hit in found:
        line = Text(f"{MARGIN}{render.safe(said.role)}: ", style="dim", no_wrap=True)
        room = max(8, width - line.cell_len)
        words = _cut(_flat(said.text[hit.start : hit.end]), room)
        room -= cell_len(words)
        before = _flat(said.text[max(0, hit.start - 4 * room) : hit.start])
        before = _cut(before[::-1], room // 2)[::-1]
        after = _flat(said.text[hit.end : hit.end + 4 * room])
        line.append(before, "not dim").append(words, "bold red not dim")
        return line.append(_cut(after, room - cell_len(before)), "not dim")
    return None


def _flat(text: str) -> str:
    """On one line. A space at an end stays: there it parts two words."""
    return " ".join(f"|{render.safe(text)}|".split())[1:-1]


def _cut(text: str, room: int) -> str:
    """Its beginning, in so many cells of a terminal: a Chinese character takes two."""
    shown = Text(text)
    shown.truncate(room, overflow="ellipsis")
    return shown.plain
