"""A selection: the rollouts that a query finds, in an order, read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from rollscope.model import show

from .compile import Query
from .engine import Engine, select
from .order import Order
from .rows import COLUMNS, SHOWN, Row
from .sql import Sql, all_of, any_of
from .tables import Result

COUNT = Sql('count(r."superseded")')
"""How many rows: `superseded` is always known. For `count(*)` the engine reads all ids."""
_ID = Sql('r."id"')
_BATCH = 2048
_Place = tuple[Any, ...]
"""Values of an order's columns; the last is the id."""


class Counts(NamedTuple):
    """How many rollouts a query finds, and what it left out."""

    matched: int
    superseded: int
    """Left out because a later launch made the same rollout again; `launch:` asks for them."""
    total: int
    """All rollouts of the store that are not superseded."""


class Page(NamedTuple):
    """Some rows, and the cursor with which the next page is asked for (None: that was all)."""

    rows: list[Row]
    next: str | None


class Selection:
    """What `store.rollouts(...)` gives: iterate it, slice it, count it, or take it elsewhere.

    >>> for row in store.rollouts("reward:<0.2", order="-advantage", limit=50):
    ...     print(row.id, row.step, row.reward)

    Nothing is read before it is asked for, and each question reads anew.
    """

    def __init__(
        self,
        engine: Engine,
        query: Query,
        order: Order,
        limit: int | None = None,
        columns: Sequence[str] = COLUMNS,
        offset: int = 0,
    ) -> None:
        self._engine = engine
        self.query = query
        self.order = order
        self.limit = limit
        self.columns = tuple(columns)
        self._offset = offset

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        return f"Selection({self.query.text!r}, order={self.order.text!r}{limit})"

    def _repr_html_(self) -> str:
        known = [name for name in SHOWN if name in self.columns]
        rows = list(self[:20])
        count = self.count()
        note = f"{len(rows)} of {count:,}" if count > len(rows) else ""
        return show.table(known, ([row[name] for name in known] for row in rows), note)

    def __iter__(self) -> Iterator[Row]:
        if self.limit is not None and self.limit <= _BATCH:
            if self._offset:
                rows = self._rows([id for (id,) in self._at(self.limit)])
            else:
                rows = [row for row, _ in self._first(self.limit)]
            yield from (row for row in rows if row is not None)
            return
        for batch in self._fresh().batches(self._sql(), _BATCH):
            for values in batch:
                yield Row(self.columns, values)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Selection: ...
    def __getitem__(self, place: int | slice) -> Row | Selection:
        """One row, or a part. For long ways use `page`: a cursor does not count rows."""
        if isinstance(place, int):
            if place < 0:
                raise IndexError("counted from the end: reverse the order instead")
            for row in self[place : place + 1]:
                return row
            raise IndexError(f"the selection has no row {place}")
        start, stop = place.start or 0, place.stop
        if place.step not in (None, 1) or start < 0 or (stop is not None and stop < 0):
            raise ValueError("a selection is sliced forwards, one by one: selection[10:20]")
        ends = [end for end in (self.limit, stop) if end is not None]
        limit = max(0, min(ends) - start) if ends else None
        offset = self._offset + start
        return Selection(self._engine, self.query, self.order, limit, self.columns, offset)

    def count(self) -> int:
        """How many rollouts match the query, whatever the limit."""
        return int(self._fresh().rows(select(self.query, COUNT))[0][0])

    def counts(self) -> Counts:
        """How many match, out of how many, and how many superseded ones were left out."""
        engine = self._fresh()
        matched = int(engine.rows(select(self.query, COUNT))[0][0])
        left_out = 0
        everything = 'count(*) FILTER (NOT r."superseded"), count(*) FILTER (r."superseded")'
        total, replaced = engine.rows(Sql(f"SELECT {everything} FROM rollouts r"))[0]
        if replaced and not self.query.superseded:
            with_old = select(self.query.with_superseded(), COUNT)
            left_out = int(engine.rows(with_old)[0][0]) - matched
        return Counts(matched, left_out, int(total))

    def page(self, size: int = 50, after: str | None = None) -> Page:
        """The next `size` rows after a cursor. Stable while rollouts are being added."""
        beyond = None if after is None else self.order.after(after)
        found = self._first(size + 1, beyond)
        rows = [row for row, _ in found[:size] if row is not None]
        if len(found) <= size or not rows:
            return Page(rows, None)
        return Page(rows, self.order.cursor(found[size - 1][1]))

    def _first(self, limit: int, beyond: Sql | None = None) -> list[tuple[Row | None, _Place]]:
        """The first rows in order, each with its values of the order's columns.

        Over one scan the engine sorts places in files and then reads the other columns of the
        chosen rows alone. Over several it would sort whole rows, and so it does behind a search
        in text: there the ids are found first. For a page out of a million rollouts the one
        takes half of what the other does, and that half of what sorting whole rows does.
        """
        places = Sql.join(", ", (column.value for column in self.order.columns))
        count = len(self.order.columns)
        if self._engine.reader.one_scan and not self.query.terms:
            found = self._sorted(Sql("{}, {}").fill(places, self._columns()), limit, beyond)
            return [(Row(self.columns, values[count:]), values[:count]) for values in found]
        found = self._sorted(places, limit, beyond)
        return list(zip(self._rows([place[-1] for place in found]), found, strict=True))

    def _rows(self, ids: list[str]) -> list[Row | None]:
        """These rollouts in this order, as rows; None: it has gone meanwhile."""
        if not ids:
            return []
        sql = 'SELECT r."id", {} FROM rollouts r WHERE r."id" IN (SELECT unnest(?))'
        found = self._engine.rows(Sql(sql, (ids,)).fill(self._columns()))
        by_id = {id: Row(self.columns, values) for id, *values in found}
        return [by_id.get(id) for id in ids]

    def place(self, id: str) -> int | None:
        """The place of a rollout in the order, counted from 0; None: it is not selected."""
        places = Sql.join(", ", (column.value for column in self.order.columns))
        here = self._engine.rows(select(self.query, places, None, Sql('r."id" = ?', (id,))))
        if not here:
            return None
        beyond = self.order.after(self.order.cursor(here[0]))
        behind = self._engine.rows(select(self.query, COUNT, None, beyond))[0][0]
        return self.count() - int(behind) - 1

    def ids(self) -> list[str]:
        """The ids, in order."""
        sql = select(self.query, Sql('r."id"'), self._tail())
        return [row[0] for row in self._fresh().rows(sql)]

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return self._fresh().taken(self._sql(), Result.to_arrow)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        return self._fresh().taken(self._sql(), Result.to_polars)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        return self._fresh().taken(self._sql(), Result.to_pandas)

    def _fresh(self) -> Engine:
        """The engine over the newest state of the store."""
        self._engine.reader.refresh()
        return self._engine

    def _columns(self) -> Sql:
        return Sql(", ".join(f'r."{name}"' for name in self.columns))

    def _sql(self) -> Sql:
        return select(self.query, self._columns(), self._tail())

    def _tail(self) -> Sql:
        limit = "" if self.limit is None else f" LIMIT {int(self.limit)}"
        offset = f" OFFSET {int(self._offset)}" if self._offset else ""
        return Sql(f"ORDER BY {{}}{limit}{offset}").fill(self.order.sql())

    def _at(self, limit: int) -> list[tuple[Any, ...]]:
        """Ids from the offset on.

        Sorted by a whole number first (steps), the values that lie before are counted and only
        those in the window are sorted: 60 instead of 1,700 ms of CPU in the middle of a million.
        """
        engine, first, offset, window = self._fresh(), self.order.columns[0], self._offset, None
        if first.whole and not self.query.terms:
            direction = "DESC" if first.down else "ASC"
            counted = select(
                self.query,
                Sql("{}, {}").fill(first.value, COUNT),
                Sql(f"GROUP BY 1 ORDER BY 1 {direction} NULLS LAST"),
            )
            offset, window = _window(engine.rows(counted), first.value, offset, limit)
        tail = Sql(f"ORDER BY {{}} LIMIT {limit} OFFSET {offset}").fill(self.order.sql())
        return engine.rows(select(self.query, _ID, tail, window))

    def _sorted(self, columns: Sql, limit: int, also: Sql | None) -> list[tuple[Any, ...]]:
        """Columns of the first rows in order.

        Sorted by time, a full page of rollouts that have a time needs no look at those that
        have none: then the engine skips whole files (25 ms instead of 130 for a million). Not
        for searches in text, which may find less than a page and must not be run twice.
        """
        engine = self._fresh()
        if self.order.by_time is not None and not self.query.terms:
            quick = self.order.by_time
            known = all_of(piece for piece in (quick.known, also) if piece is not None)
            tail = Sql(f"ORDER BY {{}} LIMIT {limit}").fill(quick.order)
            found = engine.rows(select(self.query, columns, tail, known))
            if len(found) == limit:
                return found
        tail = Sql(f"ORDER BY {{}} LIMIT {limit}").fill(self.order.sql())
        return engine.rows(select(self.query, columns, tail, also))


def _window(counted: list[tuple[Any, ...]], value: Sql, offset: int, limit: int) -> tuple[int, Sql]:
    """Which values (in order, with their counts) the rows from `offset` on have; and how many
    rows of these values lie before."""
    passed, chosen = 0, []
    for found, count in counted:
        if passed + count > offset:
            chosen.append(found)
        else:
            offset -= count
            continue
        passed += count
        if passed >= offset + limit:
            break
    ends = [found for found in chosen if found is not None]
    parts = []
    if ends:
        parts.append(Sql("{} BETWEEN ? AND ?", (min(ends), max(ends))).fill(value))
    if None in chosen:
        parts.append(Sql("{} IS NULL").fill(value))
    return offset, any_of(parts)
