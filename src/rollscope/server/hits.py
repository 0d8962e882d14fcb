"""Where the text terms of a query stand in one rollout: what is marked when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from ..model import Rollout, conversation
from ..query import Store, compile_query
from ..query.match import TextTerm
from ..query.places import places
from ..query.values import Text
from .shapes import Hit

MOST = 2000
SAID = 300
"""Characters of a find that are told with it."""


class _Said(NamedTuple):
    """One text of a message."""

    message: int
    role: str
    where: str
    text: str


def find_hits(store: Store, rollout: Rollout, q: str, find: str) -> list[Hit]:
    """Hits in the order of messages; no more than `MOST` of them."""
    terms = list(compile_query(q).terms)
    if find:
        terms.append(TextTerm(None, Text("fold", find)))
    said = list(_said(rollout))
    found: dict[tuple[int, str, int, int], str | None] = {}
    for term in terms:
        if term.test is None or not term.test.text:
            continue
        mine = [one for one in said if term.role is None or term.role == one.role]
        spans = places(store, term.test, [one.text for one in mine], MOST)
        is_pattern = term.test.kind == "regex"
        here = (
            ((one.message, one.where, start, end), one.text[start:end] if is_pattern else None)
            for one, of in zip(mine, spans, strict=True)
            for start, end in of
        )
        found.update(islice(here, MOST))
    return [
        Hit(message=place[0], start=place[2], end=place[3], where=place[1], said=_short(words))
        for place, words in sorted(found.items(), key=lambda hit: hit[0])[:MOST]
    ]


def _short(said: str | None) -> str | None:
    return said if said is not None and len(said) <= SAID else None


def _said(rollout: Rollout) -> Iterator[_Said]:
    for n, message in enumerate(rollout.messages):
        yield _Said(n, message.role, "text", conversation.text(message))
        for call in conversation.tool_calls(message):
            told = call.arguments
            text = told if isinstance(told, str) else msgspec.json.encode(told).decode()
            yield _Said(n, message.role, "tool_calls", text)
