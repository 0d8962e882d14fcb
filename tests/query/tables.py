"""A reader whose tables are filled by hand: the query language without the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import duckdb

from rollscope.model import Rollout
from rollscope.model.schema import TABLES, Column
from rollscope.store.read.found import Found

T = TypeVar("T")


class Nothing:
    """A store without findings."""

    def __init__(self) -> None:
        self.runs: dict[Any, Any] = {}
        self.units: dict[str, Any] = {}
        self.filled: frozenset[str] = frozenset()
        self.changes = 0


_SUPERSEDED = Column("superseded", "BOOLEAN", "Replaced by a later launch.")


class Tables:
    """Stands where `store.reader.Reader` stands."""

    def __init__(
        self,
        rollouts: list[dict[str, Any]] | None = None,
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1")
        for table in TABLES:
            columns = ", ".join(f'"{c.name}" {c.type}' for c in self.columns(table))
            self.connection.execute(f'CREATE TABLE "{table}" ({columns})')
        self.found = Found(self.connection.cursor(), Nothing(), Nothing())
        self.fill(rollouts or [], messages or [])

    @staticmethod
    def columns(table: str) -> tuple[Column, ...]:
        return (*TABLES[table], _SUPERSEDED) if table == "rollouts" else TABLES[table]

    def fill(self, rollouts: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        """Put these rows into the tables, in the place of what was there."""
        for table in TABLES:
            self.connection.execute(f'DELETE FROM "{table}"')
        self.add("rollouts", [{"superseded": False, **row} for row in rollouts])
        self.add("messages", messages)

    def add(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Add rows given by column; what is not given is null."""
        columns = self.columns(table)
        for row in rows:
            assert set(row) <= {c.name for c in columns}, set(row)
            places, params = [], []
            for column in columns:
                place, values = _place(column, row.get(column.name))
                places.append(place)
                params += values
            self.connection.execute(f'INSERT INTO "{table}" VALUES ({", ".join(places)})', params)
        self.version += 1

    version = 0
    far = None
    one_scan = True
    """As if all lay in files; False: as if something were live, and rows are found by id."""

    def refresh(self) -> bool:
        return False

    def is_still(self, version: int) -> bool:
        return self.version == version

    def parts(self) -> Iterator[Any]:
        return iter(())

    def described(self) -> None:
        return None

    def recovers(self, error: Exception, since: int) -> bool:
        return False

    def cursor(self) -> Any:
        return self.connection.cursor()

    def reading(self, work: Callable[[Any], T]) -> T:
        return work(self.connection)

    def slices(self, table: str) -> tuple[Any, list[tuple[str, int]]]:
        """One slice for each rollout's first letter, to have several."""
        letters = self.connection.execute(f"SELECT DISTINCT rollout[1] FROM {table}").fetchall()
        made = [f"(SELECT * FROM {table} WHERE rollout[1] = '{letter}')" for (letter,) in letters]
        return self.cursor(), [(relation, 10) for relation in made]

    def get(self, id: str) -> Rollout | None:
        row = self.connection.execute("SELECT id FROM rollouts WHERE id = ?", [id]).fetchone()
        return None if row is None else Rollout(id=row[0])

    def runs(self) -> list[Any]:
        return []

    def files(self, table: str) -> list[str]:
        return []


def _place(column: Column, value: Any) -> tuple[str, list[Any]]:
    if value is None:
        return "NULL", []
    if column.type.startswith("MAP"):
        inner = column.type.removeprefix("MAP(VARCHAR, ").removesuffix(")")
        return f"map(?::VARCHAR[], ?::{inner}[])", [list(value), list(value.values())]
    if column.type == "JSON":
        return "?::JSON", [json.dumps(value, ensure_ascii=False)]
    return f"?::{column.type}", [value]
