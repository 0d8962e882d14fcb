"""Where in an order some rows lie, found by counting.

Many rollouts share a step, and the rollouts of a step lie together in the files. So the number of
rollouts of each step tells which steps a page lies in, and the engine opens only those parts: for
the newest page of a million rollouts, a few thousand rows instead of all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from .sql import Sql, any_of

_KEPT = 32
"""Queries whose counts are kept."""

Spread = Sequence[tuple[Any, int]]
"""Values of a column in order, each with how many rows have it."""


class Window(NamedTuple):
    """A part of an order that contains the wanted rows."""

    where: Sql
    """Holds for them."""
    rows: int
    """How many they are."""
    offset: int
    """How many of them come before the wanted rows."""


def window(spread: Spread, value: Sql, offset: int, limit: int) -> Window:
    """Where rows `offset` up to `offset + limit` are, in an order whose first column is `value`."""
    passed, chosen = 0, []
    for found, count in spread:
        if passed + count <= offset:  # all of them lie before
            offset -= count
            continue
        chosen.append(found)
        passed += count
        if passed >= offset + limit:
            break
    known = [found for found in chosen if found is not None]
    parts = []
    if known:
        parts.append(Sql("{} BETWEEN ? AND ?", (min(known), max(known))).fill(value))
    if None in chosen:
        parts.append(Sql("{} IS NULL").fill(value))
    return Window(any_of(parts), passed, offset)


class Spreads:
    """Counts that were made, kept until the store changes. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = -1
        self._kept: OrderedDict[Sql, Spread] = OrderedDict()

    def get(self, version: int, sql: Sql, make: Callable[[Sql], Spread]) -> Spread:
        """What `sql` gives in this version of the store."""
        with self._lock:
            if self._version == version and sql in self._kept:
                self._kept.move_to_end(sql)
                return self._kept[sql]
        made = make(sql)
        with self._lock:
            if self._version != version:
                self._kept.clear()
                self._version = version
            self._kept[sql] = made
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made
