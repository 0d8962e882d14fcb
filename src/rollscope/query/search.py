"""A search that shows what it finds while it runs.

Messages are read slice by slice, the newest first and small slices before large ones, so
first hits come early; in between it can be ended. A rollout is told once, as soon as what
was read of it makes the query hold. Where a hit can *end* that (a text term under a
negation), nothing is told before everything was read. If a file goes away (compaction, `rm`)
everything is read again, over the new files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import flags
from .compile import Query, hits_of
from .engine import Engine, select
from .rows import Row
from .sql import Sql, all_of

_SOME = 2000


class Found(NamedTuple):
    """What a search has found since it last told, and how far it is (in bytes)."""

    rows: list[Row]
    scanned: int
    total: int
    done: bool
    more: bool = False
    """Did it end because `limit` rollouts were found? Then there may be others."""


class Search:
    """Iterate it once; `cancel()`, from any thread, ends it."""

    def __init__(
        self, engine: Engine, query: Query, columns: Sequence[str], limit: int | None = None
    ) -> None:
        self._engine = engine
        self._query = query
        self._columns = tuple(columns)
        self._left = limit
        self._told: set[str] = set()
        self._hits: dict[str, list[bool]] = {}
        self._cursor: Any = None
        self._cancelled = False

    def __repr__(self) -> str:
        return f"Search({self._query.text!r}, {len(self._told):,} found)"

    def cancel(self) -> None:
        """End the search, also in the middle of a slice."""
        self._cancelled = True
        if self._cursor is not None:
            self._cursor.interrupt()

    def __iter__(self) -> Iterator[Found]:
        import duckdb

        from rollscope.store.engine import FAILURES

        while True:
            since = self._engine.reader.version
            try:
                yield from self._run()
                return
            except duckdb.InterruptException:
                if not self._cancelled:
                    raise
                return
            except FAILURES as error:
                # A file went away: search again over the new ones. Reported rows are not reported
                # again.
                if not self._engine.reader.recovers(error, since):
                    raise
            finally:
                if self._cursor is not None:
                    self._cursor.close()
                    self._cursor = None

    def _run(self) -> Iterator[Found]:
        query = self._query
        self._cursor, slices = self._engine.reader.slices("messages")
        total = sum(size for _, size in slices)
        scanned = 0
        yield Found([], 0, total, False)
        if query.terms and query.hits_only_add:
            for relation, size in slices:
                if self._cancelled or self._left == 0:
                    return
                for rows in self._look_at(relation):
                    full = self._left == 0
                    yield Found(rows, scanned, total, done=full, more=full)
                scanned += size
                if self._left == 0:
                    return
                last = scanned == total and query.needs_hit
                yield Found([], scanned, total, last)
                if last:
                    return
        if not self._cancelled and self._left != 0:
            rows = self._tell(select(query, self._picked(), self._tail()))
            yield Found(rows, total, total, done=True, more=self._left == 0)

    def _look_at(self, relation: str) -> Iterator[list[Row]]:
        """Search one slice, and ask for the rollouts that had a hit in it, some at a time."""
        found = self._rows(hits_of(self._query, relation))
        for id, *terms in found:
            before = self._hits.get(id, [False] * len(terms))
            self._hits[id] = [a or bool(b) for a, b in zip(before, terms, strict=True)]
        ids = [row[0] for row in found if row[0] not in self._told]
        for start in range(0, len(ids), _SOME):
            if self._cancelled or self._left == 0:
                return
            rows = self._tell(self._among(ids[start : start + _SOME]))
            if rows:
                yield rows

    def _among(self, ids: list[str]) -> Sql:
        """The rows of these rollouts for which the query holds by the hits so far."""
        columns = zip(*(self._hits[id] for id in ids), strict=True)
        names = ", ".join(f"unnest(?::BOOLEAN[]) AS t{i}" for i in range(len(self._query.terms)))
        hits = Sql(
            f"SELECT unnest(?::VARCHAR[]) AS rollout, {names}", (ids, *(list(c) for c in columns))
        )
        among = all_of((self._query.where, Sql("r.id IN (SELECT rollout FROM hits)")))
        sql = Sql("WITH hits AS MATERIALIZED ({}) SELECT {} FROM rollouts r WHERE {} {}")
        return sql.fill(hits, self._picked(), among, self._tail())

    def _tell(self, sql: Sql) -> list[Row]:
        """The rows that were not told yet."""
        rows, told = [], []
        for id, *values in self._rows(sql):
            if id not in self._told and self._left != 0:
                self._told.add(id)
                self._left = None if self._left is None else self._left - 1
                rows.append(Row(self._columns, values))
                told.append(id)
        flags.added(self._engine, zip(told, rows, strict=True))
        return rows

    def _rows(self, sql: Sql) -> list[tuple[Any, ...]]:
        return list(self._cursor.execute(sql.text, sql.bound()).fetchall())

    def _picked(self) -> Sql:
        return Sql(", ".join(f'r."{name}"' for name in ("id", *self._columns)))

    def _tail(self) -> Sql:
        return Sql('ORDER BY r."time" DESC NULLS LAST, r."id"')
