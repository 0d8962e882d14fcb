"""Whole rollouts, many of them, each file read once from its beginning to its end.

`Reader.get_many` looks for some ids in all files; asked again and again, it looks through all ids
of the store each time. Here the rollouts come in the order in which they lie: ten times as many
take ten times as long, and memory holds a few of them. Those that do not lie in one place (live
ones, those with late facts or pieces) come last, by `get_many`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

from duckdb import DuckDBPyConnection

from ..engine import FAILURES
from ..tables import StoredRow, columns, rows
from ..units import Unit
from .bodies import OF_BODIES, StoredRollout, stored
from .outgoing import outgoing
from .reader import Reader

_BATCH = 64
"""Rows that are taken from the engine at a time: a row may be megabytes."""

_BODIES = {"messages": "", "spans": "", "facts": f" AND {OF_BODIES}"}
"""What belongs to a rollout, and which of it."""


class _OutOfOrder(Exception):
    """The tables of a unit are not in the same order."""


def streamed(reader: Reader, ids: Sequence[str]) -> Iterator[StoredRollout]:
    """Whole rollouts in any order, late facts folded in, without those that have gone by now.

    The reader should have one thread: with several, the engine mixes the rows of a file.
    """
    left = dict.fromkeys(ids)
    since = reader.version
    try:
        for found in _from_files(reader, list(left)):
            del left[str(found.rollout.id)]
            yield found
    except _OutOfOrder:
        pass
    except FAILURES as error:
        if not reader.recovers(error, since):
            raise
    yield from outgoing(reader, left, has_tags=False)


def _from_files(reader: Reader, ids: list[str]) -> Iterator[StoredRollout]:
    """Those that lie in one sealed unit each, unit by unit."""
    if reader.threads != 1:
        return
    with reader.cursor() as db:
        db.execute("CREATE TEMP TABLE asked AS SELECT unnest(?::VARCHAR[]) AS id", [ids])
        for unit, chosen in _by_unit(reader, db):
            yield from _of_unit(reader, unit, chosen)


def _by_unit(reader: Reader, db: DuckDBPyConnection) -> list[tuple[Unit, list[str]]]:
    """The ids that are wanted, by the one unit that holds all of them."""
    units = {str(unit.directory): unit for unit in reader.units}
    sealed = reader.relation("rollouts", list(units.values()), filename=True)
    if sealed is None:
        return []
    elsewhere = [f"SELECT id FROM tail.{table}" for table in ("rollouts", "patched", "homes")]
    late = reader.relation("spans", [unit for unit in units.values() if unit.info.late_spans])
    elsewhere += [f"SELECT rollout FROM {late}"] if late is not None else []
    rows = db.execute(
        "SELECT unit, list(id) FROM (SELECT parse_dirpath(filename) AS unit, id "
        f"FROM {sealed} WHERE id IN (SELECT id FROM asked) "
        f"AND id NOT IN ({' UNION ALL '.join(elsewhere)}) "
        "QUALIFY count(*) OVER (PARTITION BY id) = 1) GROUP BY unit ORDER BY unit"
    ).fetchall()
    return [(units[unit], ids) for unit, ids in rows]


def _of_unit(reader: Reader, unit: Unit, ids: list[str]) -> Iterator[StoredRollout]:
    """Chosen rollouts of one unit. Its tables are sorted alike, so they are read side by side."""
    with contextlib.ExitStack() as open_cursors:

        def asked(names: str, table: str, key: str, also: str = "") -> Iterator[StoredRow]:
            relation = reader.relation(table, [unit])
            if relation is None:
                return iter(())
            db = open_cursors.enter_context(reader.cursor())
            db.execute("CREATE TEMP TABLE chosen AS SELECT unnest(?::VARCHAR[]) AS id", [ids])
            sql = f"SELECT {names} FROM {relation} WHERE {key} IN (SELECT id FROM chosen){also}"
            return rows(db, sql, batch=_BATCH)

        order = {row["id"]: n for n, row in enumerate(asked("id", "rollouts", "id"))}
        pieces = {}
        for table, also in _BODIES.items():
            places = [order.get(r["rollout"], -1) for r in asked("rollout", table, "rollout", also)]
            if any(a > b for a, b in pairwise(places)):
                raise _OutOfOrder
            found = asked(columns(table), table, "rollout", also) if places else iter(())
            pieces[table] = _Pieces(found)
        for row in asked(columns("rollouts"), "rollouts", "id"):
            parts = [pieces[table].of(row["id"]) for table in _BODIES]
            if len(parts[0]) != (row["messages"] or 0):
                raise _OutOfOrder
            yield stored(row, *parts)


class _Pieces:
    """Rows that belong to rollouts, those of one after those of the other."""

    def __init__(self, found: Iterator[StoredRow]) -> None:
        self._groups = groupby(found, key=itemgetter("rollout"))
        self._next = self._take()

    def _take(self) -> tuple[str, list[StoredRow]] | None:
        for id, found in self._groups:
            return id, list(found)
        return None

    def of(self, id: str) -> list[StoredRow]:
        """The rows of a rollout, if they come next."""
        if self._next is None or self._next[0] != id:
            return []
        found, self._next = self._next[1], self._take()
        return found
