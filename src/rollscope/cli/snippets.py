"""The words around what a query found, for `grep`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model import Rollout, conversation
from . import render

if TYPE_CHECKING:
    from ..query import Query, Store

AROUND = 24
"""Characters shown before a hit."""


def snippet(store: Store, query: Query, id: str) -> str | None:
    """The first hit of a query's words in a rollout; None if the query has no words."""
    from ..query.places import places

    said = list(_texts(store.get(id))) if query.terms else []
    first: tuple[int, int, int] | None = None
    for term in query.terms:
        if term.test is None:
            continue
        mine = [n for n, (role, _) in enumerate(said) if term.role in (None, role)]
        found = places(store, term.test, [said[n][1] for n in mine], 1)
        hit = next(((n, *spans[0]) for n, spans in zip(mine, found, strict=True) if spans), None)
        if hit is not None and (first is None or hit[0] < first[0]):
            first = hit
    if first is None:
        return None
    n, begin, end = first
    role, text = said[n]
    start = max(0, begin - AROUND)
    return f"{role}: {'…' if start else ''}{render.one_line(text[start : end + 200], 200)}"


def _texts(rollout: Rollout) -> Iterator[tuple[str, str]]:
    for message in rollout.messages:
        if message.content is not None:
            yield message.role, conversation.text(message)
        for call in conversation.tool_calls(message):
            yield message.role, render.as_text(call.arguments)
