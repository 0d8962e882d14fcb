"""The words around what a query found, for `grep`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model import Rollout
from . import render

if TYPE_CHECKING:
    from ..query import Query, Store

AROUND = 24
"""Characters shown before a hit."""


def snippet(store: Store, query: Query, id: str) -> str | None:
    """The first hit of a query's words in a rollout; None if the query has no words."""
    from ..query.match import pattern

    wanted = [(t.role, pattern(t.test)) for t in query.terms if t.test is not None]
    if not wanted:
        return None
    for role, text in _texts(store.get(id)):
        for asked, words in wanted:
            if asked is not None and asked != role:
                continue
            try:
                found = re.search(words, text)
            except re.error:  # RE2 knows patterns that Python does not
                continue
            if found is not None:
                start = max(0, found.start() - AROUND)
                cut = text[start : found.end() + 200]
                return f"{role}: {'…' if start else ''}{render.one_line(cut, 200)}"
    return None


def _texts(rollout: Rollout) -> Iterator[tuple[str, str]]:
    for message in rollout.messages:
        if isinstance(message.content, str):
            yield message.role, message.content
        elif message.content is not None:
            yield message.role, "".join(part.text or "" for part in message.content)
        for call in message.tool_calls:
            yield message.role, render.as_text(call.arguments)
