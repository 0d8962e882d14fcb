"""A selection: the rollouts that a query finds, in an order, read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from rollscope.model import show

from . import flags
from .compile import Query
from .engine import Engine, select
from .order import Order
from .results import Result
from .rows import COLUMNS, SHOWN, Row
from .sql import Sql, all_of
from .window import Spread, window

COUNT = Sql('count(r."superseded")')
"""How many rows: `superseded` is always known. For `count(*)` the engine reads all ids."""
_ALL_COUNTS = """SELECT count(*) FILTER (NOT r."superseded"), count(*) FILTER (r."superseded")
FROM rollouts r"""
_BATCH = 2048
_FEW = 2000
"""Rows that are sorted with all their columns as fast as without."""
_NEAR = 2000
"""Up to so many rows the engine sorts without their other columns (`store/engine.py`)."""
_VALUES = 20_000
"""Steps, or other whole numbers, that are counted one by one."""
_TRIES = 3
_SortValues = tuple[Any, ...]
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
            found = self._window(self._offset, self.limit)
            yield from (row for row, _ in found if row is not None)
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
        engine = self._fresh()
        if (described := self._all_counts()) is not None:
            return described[0]
        spread = self._spread()
        if spread is not None:
            return sum(count for _, count in spread)
        return int(engine.rows(select(self.query, COUNT))[0][0])

    def counts(self) -> Counts:
        """How many match, out of how many, and how many superseded ones were left out."""
        engine, matched = self._fresh(), self.count()
        left_out = 0
        total, replaced = self._all_counts(any_query=True) or engine.rows(Sql(_ALL_COUNTS))[0]
        if replaced and not self.query.superseded:
            with_old = select(self.query.with_superseded(), COUNT)
            left_out = int(engine.rows(with_old)[0][0]) - matched
        return Counts(matched, left_out, int(total))

    def _all_counts(self, any_query: bool = False) -> tuple[int, int] | None:
        """Rollouts that are not superseded, and those that are, from descriptions of files that are
        far away. None: the files must be asked."""
        reader = self._engine.reader
        if self.query.text.strip() and not any_query:
            return None
        for _ in range(_TRIES):
            version = reader.version
            part = reader.described()
            if part is None:
                return None
            shown, replaced = self._engine.rows(Sql(part.over(_ALL_COUNTS)))[0]
            if reader.is_still(version):
                return shown + part.left, replaced
        return None

    def page(self, size: int = 50, after: str | None = None) -> Page:
        """The next `size` rows after a cursor. Stable while rollouts are being added."""
        beyond = None if after is None else self.order.after(after)
        found = self._window(0, size + 1, beyond)
        rows = [row for row, _ in found[:size] if row is not None]
        if len(found) <= size or not rows:
            return Page(rows, None)
        return Page(rows, self.order.cursor(found[size - 1][1]))

    def _window(
        self, offset: int, limit: int, beyond: Sql | None = None
    ) -> list[tuple[Row | None, _SortValues]]:
        """Rows from a place on, each with its values of the order's columns."""
        found = self._unflagged(offset, limit, beyond)
        flags.added(self._engine, ((values[-1], row) for row, values in found))
        return found

    def _unflagged(
        self, offset: int, limit: int, beyond: Sql | None
    ) -> list[tuple[Row | None, _SortValues]]:
        for _ in range(_TRIES):
            reader = self._fresh().reader
            version = reader.version
            spread = self._spread() if beyond is None else None
            if spread is None:
                return self._found(offset, limit, beyond)
            near = window(spread, self.order.columns[0].value, offset, limit)
            found = self._found(near.offset, limit, near.where, near.rows)
            if reader.is_still(version):
                return found
        return self._found(offset, limit)

    def _spread(self) -> Spread | None:
        """How many rollouts have each value of the order's first column. None if that does not
        help: there are too many values, or only a text search could tell."""
        first = self.order.columns[0]
        if not first.whole or self.query.terms:
            return None
        direction = "DESC" if first.down else "ASC"
        tail = Sql(f"GROUP BY 1 ORDER BY 1 {direction} NULLS LAST LIMIT {_VALUES + 1}")
        counted = select(self.query, Sql("{}, {}").fill(first.value, COUNT), tail)
        spread = self._engine.kept(counted)
        return spread if len(spread) <= _VALUES else None

    def _found(
        self, offset: int, limit: int, also: Sql | None = None, most: int | None = None
    ) -> list[tuple[Row | None, _SortValues]]:
        """Rows of the order from a place on, among those for which `also` holds. `most` is how many
        these are, if known.

        Few rows are sorted whole. If there are many in one scan of files, the engine sorts their
        places and then reads the other columns of the chosen rows only. Over several scans it would
        sort whole rows, and also far down and after a text search: there we find the ids first. For
        a page out of a million rollouts, the first way takes half the time of the second, and the
        second half the time of sorting whole rows.
        """
        places = Sql.join(", ", (column.value for column in self.order.columns))
        whole = Sql("{}, {}").fill(places, self._columns())
        if most is not None and most <= _FEW:
            # This limit leaves nothing out: the engine then takes the rows as they are, instead
            # of sorting their places and reading their files twice, which pays for many.
            few = select(self.query, Sql("r.*"), Sql(f"LIMIT {most}"), also)
            page = f"SELECT {{}} FROM ({{}}) r ORDER BY {{}} LIMIT {limit} OFFSET {offset}"
            return self._split(self._engine.rows(Sql(page).fill(whole, few, self.order.sql())))
        reader, near = self._engine.reader, offset + limit <= _NEAR
        if (reader.one_scan or reader.far is not None) and not self.query.terms and near:
            return self._split(self._sorted(whole, offset, limit, also))
        found = self._sorted(places, offset, limit, also)
        return list(zip(self._rows(found), found, strict=True))

    def _split(self, found: list[tuple[Any, ...]]) -> list[tuple[Row | None, _SortValues]]:
        count = len(self.order.columns)
        return [(Row(self.columns, values[count:]), values[:count]) for values in found]

    def _rows(self, places: list[_SortValues]) -> list[Row | None]:
        """The rollouts at these places, as rows; None: it has gone meanwhile."""
        if not places:
            return []
        ids, times = [place[-1] for place in places], [place[0] for place in places]
        wanted = Sql('r."id" IN (SELECT unnest(?))', (ids,))
        if self.order.by_time is not None and None not in times:  # so the engine skips files
            between = Sql("{} BETWEEN ? AND ?", (min(times), max(times)))
            wanted = all_of((wanted, between.fill(self.order.by_time.time)))
        sql = Sql('SELECT r."id", {} FROM rollouts r WHERE {}').fill(self._columns(), wanted)
        found = self._engine.rows(sql)
        by_id = {id: Row(self.columns, values) for id, *values in found}
        return [by_id.get(id) for id in ids]

    def place(self, id: str) -> int | None:
        """The place of a rollout in the order, counted from 0; None: it is not selected."""
        places = Sql.join(", ", (column.value for column in self.order.columns))
        here = self._fresh().rows(select(self.query, places, None, Sql('r."id" = ?', (id,))))
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
        columns = self._columns()
        if "flags" in self.columns and self._engine.reader.found.any:
            columns = Sql(columns.text.replace('r."flags"', f'{flags.ALL_FLAGS} AS "flags"'))
        return select(self.query, columns, self._tail())

    def _tail(self) -> Sql:
        limit = "" if self.limit is None else f" LIMIT {int(self.limit)}"
        offset = f" OFFSET {int(self._offset)}" if self._offset else ""
        return Sql(f"ORDER BY {{}}{limit}{offset}").fill(self.order.sql())

    def _sorted(
        self, columns: Sql, offset: int, limit: int, also: Sql | None
    ) -> list[tuple[Any, ...]]:
        """Columns of rows of the order from a place on.

        Sorted by time, a full page of rollouts with a time needs no look at those without one, and
        the engine skips whole files (25 ms instead of 130 for a million). Text searches do not do
        this: they may find less than a page and must not run twice.
        """
        if self.order.by_time is not None and not self.query.terms and not offset:
            quick = self.order.by_time
            known = all_of(piece for piece in (quick.known, also) if piece is not None)
            tail = Sql(f"ORDER BY {{}} LIMIT {limit}").fill(quick.order)
            asked = select(self.query, columns, tail, known)
            reader = self._engine.reader
            version = reader.version
            for part in reader.parts() if quick.newest_first else ():
                found = self._engine.rows(Sql(part.over(asked.text), asked.params))
                if len(found) == limit and found[-1][0] > part.before and reader.is_still(version):
                    return found
            found = self._engine.rows(asked)
            if len(found) == limit:
                return found
        tail = Sql(f"ORDER BY {{}} LIMIT {limit} OFFSET {offset}").fill(self.order.sql())
        return self._engine.rows(select(self.query, columns, tail, also))
