"""The words around what a query found, for `grep`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import render

if TYPE_CHECKING:
    from ..query import Query, Store

AROUND = 24
"""Characters shown before a hit."""


def snippet(store: Store, query: Query, id: str) -> str | None:
    """The first hit of a query's words in a rollout; None if the query has no words."""
    from ..query.hits import hits

    found = hits(store, store.get(id), query.terms, 1) if query.terms else []
    for said, hit in found:
        start = max(0, hit.start - AROUND)
        shown = render.one_line(said.text[start : hit.end + 200], 200)
        return f"{said.role}: {'…' if start else ''}{shown}"
    return None
