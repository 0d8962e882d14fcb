"""Questions that the nodes of a Ray cluster answer together: `store.to_ray`, `grep --on ray`.

A selection is cut by run and step. Files are sorted by step, so the engine of a task skips the row
groups of the other tasks. Each piece is a query of its own, so live, late and superseded rollouts
come out as they do on one machine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rollscope.store.read import on_ray
from rollscope.store.read.on_ray import Columns, Piece, StorePlace

from .compile import Query
from .engine import select
from .order import parse_order
from .overview import exactly, joined
from .rows import Row
from .selection import Counts, Selection
from .sql import TRUE, Sql

if TYPE_CHECKING:
    from .store import Store

PIECE = 16_384
"""Rollouts that a task looks at, about: a step is never cut."""


class Part(NamedTuple):
    """A part of a selection."""

    query: str
    """Finds the rollouts of this part."""
    most: int
    """How many it finds at most: terms about text were not asked yet."""


class _Matched(NamedTuple):
    """What a query finds in one part."""

    ids: list[str]
    """The first of the order."""
    matched: int
    superseded: int


def parts(store: Store, query: Query) -> list[Part]:
    """A selection, cut into parts of some thousand rollouts. Together they are all of it."""
    counted = Sql(
        'SELECT r."project", r."run", r."step", count(*) FROM rollouts r WHERE {} '
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 NULLS LAST"
    )
    found = []
    for place, steps in groupby(store.engine.rows(counted.fill(query.narrow)), lambda r: r[:2]):
        named = zip(("project", "run"), place, strict=True)
        where = joined(*(_is(key, value) for key, value in named))
        for first, last, count in _ranges((step, count) for _, _, step, count in steps):
            there = "step:none" if first is None else f"step:>={first} step:<={last}"
            found.append(Part(joined(query.text, where, there), count))
    return found


def _is(key: str, value: str | None) -> str:
    return f"{key}:none" if value is None else exactly(key, value)


def _ranges(
    steps: Iterator[tuple[int | None, int]],
) -> Iterator[tuple[int | None, int | None, int]]:
    """Steps with how many rollouts each has, gathered: first and last step, and how many."""
    first: int | None = None
    last: int | None = None
    size = 0
    for step, count in steps:
        if size and (size + count > PIECE or step is None):
            yield first, last, size
            size = 0
        first = step if not size else first
        last, size = step, size + count
    if size:
        yield first, last, size


def rollouts(store: Store, query: str, columns: Sequence[str]) -> Any:
    """A `ray.data.Dataset` of thin rows, in no order."""
    compiled, place = store.query(query), on_ray.place(store.reader)
    pieces = [
        Piece(
            functools.partial(_tables, place, part.query, tuple(columns)),
            None if compiled.terms else part.most,
        )
        for part in parts(store, compiled)
    ]
    if not pieces:  # a dataset without rows has columns all the same
        pieces = [Piece(functools.partial(_tables, place, query, tuple(columns)), 0)]
    return on_ray.dataset(pieces, "Rollouts")


def _tables(
    place: StorePlace, query: str, columns: tuple[str, ...], wanted: Columns
) -> Iterator[Any]:
    """In a task: the rows of a part."""
    names = columns if wanted is None else tuple(name for name in columns if name in wanted)
    yield _store(place).rollouts(query, columns=names).to_arrow()


def found(store: Store, query: str, order: str, limit: int) -> tuple[list[Row], Counts]:
    """The first rows that a query finds, and how many there are, as `store.rollouts` tells them."""
    compiled, place = store.query(query), on_ray.place(store.reader)
    asked = [(place, p.query, order, limit) for p in parts(store, compiled.with_superseded())]
    ids: list[str] = []
    matched = superseded = 0
    for part in on_ray.mapped(_matched, asked):
        ids += part.ids
        matched += part.matched
        superseded += part.superseded
    these = Sql('r."id" IN (SELECT unnest(?))', (ids,))
    chosen = compiled._replace(where=these, narrow=TRUE, terms=(), superseded=True)
    rows = list(Selection(store.engine, chosen, parse_order(order), limit))
    total = store.rollouts().counts().total
    return rows, Counts(matched, superseded, total)


def _matched(place: StorePlace, query: str, order: str, limit: int) -> Iterator[_Matched]:
    """In a task: what a query finds in a part. Text is searched once, for the count as well."""
    store = _store(place)
    compiled = store.query(query)
    sorted_by = Sql("ORDER BY {}").fill(parse_order(order).sql())
    columns = Sql('r."id", r."superseded"')
    rows = store.engine.rows(select(compiled.with_superseded(), columns, sorted_by))
    ids = [id for id, is_superseded in rows if compiled.superseded or not is_superseded]
    yield _Matched(ids[:limit], len(ids), len(rows) - len(ids))


def _store(place: StorePlace) -> Store:
    from .store import Store

    return Store(reader=on_ray.opened(place))
