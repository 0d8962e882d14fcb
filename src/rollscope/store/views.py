"""The five views over sealed units and the live tail, as SQL text.

Files are always named one by one: no globs, no partition guessing, whatever runs are called.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
from duckdb import DuckDBPyConnection

from ..model import schema
from .tables import columns, q
from .units import Unit, fingerprint

_TYPES = {table: {c.name: c.type for c in cols} for table, cols in schema.TABLES.items()}


def literal(text: str) -> str:
    """`text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def read(files: Iterable[str], *, filename: bool = False) -> str:
    """A relation over Parquet files that all have the same columns."""
    names = ", ".join(map(literal, files))
    extra = ", filename = true" if filename else ""
    return f"read_parquet([{names}], hive_partitioning = false{extra})"


def is_one_scan(relation: str) -> bool:
    """Is it what `read` gave?"""
    return relation.startswith("read_parquet")


class Shapes:
    """How files of other versions are read: by name, what is missing null, the rest ignored."""

    def __init__(self, db: DuckDBPyConnection) -> None:
        self._db = db
        self._mine = fingerprint()
        self._selects: dict[tuple[str, str], str] = {}
        self.ignored: dict[str, str] = {}
        """What is not shown of which file."""

    def relation(self, table: str, units: Iterable[Unit], *, filename: bool = False) -> str | None:
        """The rows of a table in these units, with exactly the columns of this version.

        None: none of them has that table. With `filename`, that column comes last.
        """
        plain: list[str] = []
        odd: list[str] = []
        extra = ", filename" if filename else ""
        for unit in units:
            if table not in unit.tables:
                continue
            path = str(unit.file(table))
            if unit.info.columns == self._mine:
                plain.append(path)
            else:
                select = self._by_name(table, path, unit)
                if select is not None:
                    odd.append(f"SELECT {select}{extra} FROM {read([path], filename=filename)}")
        if plain:
            files = read(plain, filename=filename)
            if not odd:
                return files  # planning a SELECT of all columns around it takes half a millisecond
            odd.insert(0, f"SELECT {columns(table)}{extra} FROM {files}")
        return f"({' UNION ALL '.join(odd)})" if odd else None

    def _by_name(self, table: str, path: str, unit: Unit) -> str | None:
        """What to select from a file of another version; None: it cannot be read."""
        if (table, path) not in self._selects:
            try:
                found = {
                    row[0]: row[1]
                    for row in self._db.execute(f"DESCRIBE SELECT * FROM {read([path])}").fetchall()
                }
            except duckdb.Error as error:
                if "No such file" in str(error) or not unit.file(table).exists():
                    raise FileNotFoundError(path) from error
                self.ignored[path] = f"cannot be read ({_first_line(error)})"
                return None
            self._selects[table, path] = self._select(table, path, unit, found)
        return self._selects[table, path]

    def _select(self, table: str, path: str, unit: Unit, found: dict[str, str]) -> str:
        unknown = sorted(set(found) - set(_TYPES[table]))
        version = unit.info.version
        if version > schema.VERSION or unknown:
            what = f"columns not shown: {', '.join(unknown)}" if unknown else "all columns known"
            self.ignored[path] = (
                f"format {version}, this program knows {schema.VERSION}; {what}"
                if version != schema.VERSION
                else what
            )
        picked = []
        for name, type in _TYPES[table].items():
            if name not in found:
                picked.append(f"CAST(NULL AS {type}) AS {q(name)}")
            elif found[name] == type:
                picked.append(q(name))
            else:
                picked.append(f"TRY_CAST({q(name)} AS {type}) AS {q(name)}")
        return ", ".join(picked)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def body_view(table: str, sealed: str | None, *, live: bool) -> str:
    """The view of messages, spans, facts or metrics. `live`: the tail has rows of it."""
    sources = [source for source in (sealed, f"tail.{table}" if live else None) if source]
    selects = [f"SELECT {columns(table)} FROM {source}" for source in sources or [f"tail.{table}"]]
    return f"CREATE OR REPLACE VIEW {table} AS {' UNION ALL '.join(selects)}"


def rollouts_view(
    plain: str | None, checked: str | None, *, live: bool, patched: bool, hidden: bool
) -> str:
    """The view of rollouts.

    `plain` files are shown as they are. In `checked` ones and the tail, rows that stand in
    `tail.patched` are left out, and those in `tail.hidden` are marked superseded. `live`,
    `patched` and `hidden` tell which tables of the tail have rows: planning a query over an
    empty one takes as long as over one that has some.
    """
    names = columns("rollouts")
    mark = "id IN (SELECT id FROM tail.hidden)" if hidden else "false"
    left_out = " WHERE id NOT IN (SELECT id FROM tail.patched)" if patched else ""
    branches = []
    if live or not (plain or checked):
        branches.append(f"SELECT {names}, {mark} AS superseded FROM tail.rollouts{left_out}")
    if patched:
        branches.append(f"SELECT {names}, {mark} AS superseded FROM tail.patched")
    if plain:
        branches.insert(0, f"SELECT {names}, false AS superseded FROM {plain}")
    if checked:
        branches.append(f"SELECT {names}, {mark} AS superseded FROM {checked}{left_out}")
    return f"CREATE OR REPLACE VIEW rollouts AS {' UNION ALL '.join(branches)}"
