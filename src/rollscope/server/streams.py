"""Answers that go on: what is new in the store, and a text search while it runs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread

from . import params as p
from . import shapes as s
from . import turns
from .desk import Desk
from .rows import COLUMNS, thin

LOOK = 0.7
"""Seconds between looks at the store: with the writer's flush, new rollouts show within two."""
QUIET = 15.0
"""Seconds after which a word is said anyway, so that proxies keep the line open."""
FOUND = 10_000
"""A search stops after so many rollouts: nobody reads more, and each is kept in the page."""


async def events(desk: Desk, _: p.Nothing, who: str) -> AsyncIterator[tuple[str, Any]]:
    """Tells when the store has changed: its generation, and how many rollouts there are."""
    seen, silent = "", 0.0
    while True:
        await anyio.to_thread.run_sync(desk.store.refresh)
        if desk.generation != seen:
            seen, silent = desk.generation, 0.0
            yield "news", await anyio.to_thread.run_sync(_news, desk)
        elif silent >= QUIET:
            silent = 0.0
            yield "still", None
        await anyio.sleep(LOOK)
        silent += LOOK


def _news(desk: Desk) -> s.News:
    rollouts = desk.keep(("total",), lambda: desk.store.rollouts("").count())
    return s.News(generation=desk.generation, rollouts=rollouts)


async def search(desk: Desk, ask: p.SelectionOf, who: str) -> AsyncIterator[tuple[str, Any]]:
    """Rollouts as they are found, with progress; closing the line ends the search."""
    running = await anyio.to_thread.run_sync(
        lambda: desk.store.search(ask.q, columns=COLUMNS, limit=FOUND)
    )
    steps, left, scanned, total = iter(running), turns.SECONDS, 0, 0
    try:
        with desk.turns.asking(who) as client:
            while True:
                found = None
                async with desk.turns.turn(client):
                    began = time.monotonic()
                    with anyio.move_on_after(left) as limit:
                        found = await turns.aside(next, steps, None, abandon=True)
                    left -= time.monotonic() - began
                if limit.cancelled_caught:
                    last = s.SearchNews(
                        rows=[], scanned=scanned, total=total, done=True, stopped=True
                    )
                    yield "found", last
                    return
                if found is None:
                    return
                _, scanned, total, done, more = found
                rows = [thin(row) for row in found.rows]
                yield (
                    "found",
                    s.SearchNews(rows=rows, scanned=scanned, total=total, done=done, more=more),
                )
    finally:
        running.cancel()
