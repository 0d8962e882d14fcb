"""Running compiled queries over a reader's views.

Every statement has a connection of its own, so threads and half-read results do not meet.
If a file goes away while it is read (compaction, `rm`), the reader looks again and the
statement is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from .compile import Query, hits_table
from .errors import QueryError
from .results import Result
from .sql import Sql, all_of
from .window import Spread, Spreads

if TYPE_CHECKING:
    from rollscope.store.read.reader import Reader

T = TypeVar("T")


class Engine:
    """Executes SQL over a reader's views."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._spreads = Spreads()

    def batches(self, sql: Sql, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """The result of a statement with an ORDER BY, piece by piece.

        Such a statement has read all its files before it gives its first row. After that, a file
        may go away without harm.
        """
        params = sql.bound()

        def begun(_: Any) -> tuple[Any, list[tuple[Any, ...]]]:
            cursor = self.reader.cursor()
            return cursor, cursor.execute(sql.text, params).fetchmany(size)

        from rollscope.store.engine import FAILURES

        since = self.reader.version
        cursor, batch = self.reader.reading(begun)
        try:
            while batch:
                yield batch
                batch = cursor.fetchmany(size)
        except FAILURES as error:  # rows were given already: the next question leaves the file out
            self.reader.recovers(error, since)
            raise
        finally:
            cursor.close()

    def rows(self, sql: Sql) -> list[tuple[Any, ...]]:
        """The whole result."""
        params = sql.bound()
        return self.reader.reading(lambda _: _taken(self.reader.cursor(), sql.text, params))

    def kept(self, sql: Sql) -> Spread:
        """The whole result of counting, made anew only if the store has changed."""
        return self._spreads.get(self.reader.version, sql, self.rows)

    def taken(self, sql: Sql, how: Callable[[Result], T]) -> T:
        """The whole result in the form of another library: `how` is `Result.to_polars`, ..."""
        return how(Result(self.reader, sql))

    def check(self, query: Query) -> None:
        """Raise `QueryError` if the engine cannot read one of the query's patterns."""
        import duckdb

        for test in query.patterns:
            try:
                # Not by `rows`: the reader would take the error for a damaged file.
                tried = Sql("SELECT regexp_matches('', ?)", (test.text,))
                _taken(self.reader.cursor(), tried.text, tried.bound())
            except duckdb.Error as error:
                said = str(error).partition("Error: ")[2] or str(error)
                what = f"the pattern cannot be read: {said.splitlines()[0]}"
                raise QueryError(what, query.text, test.start, test.end) from None


def _taken(cursor: Any, text: str, params: list[Any]) -> list[tuple[Any, ...]]:
    try:
        return list(cursor.execute(text, params).fetchall())
    finally:
        cursor.close()


def select(query: Query, columns: Sql, tail: Sql | None = None, also: Sql | None = None) -> Sql:
    """`SELECT columns FROM rollouts r` where the query holds, and `also`; then `tail`."""
    where = query.where if also is None else all_of((query.where, also))
    sql = Sql("SELECT {} FROM rollouts r WHERE {}").fill(columns, where)
    if tail is not None:
        sql = Sql.join(" ", (sql, tail))
    return with_hits(query, sql)


def with_hits(query: Query, sql: Sql) -> Sql:
    """Put the table `hits` before a statement that uses the query's `where`."""
    if not query.terms:
        return sql
    return Sql("WITH hits AS MATERIALIZED ({}) {}").fill(hits_table(query), sql)
