"""Sealed files as relations of the engine, whichever version of the program wrote them.

Files are always named one by one: no globs, no partition guessing, whatever runs are called.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
from duckdb import DuckDBPyConnection

from ..model import schema
from .tables import columns, literal, q
from .units import Unit, fingerprint

_TYPES = {table: {c.name: c.type for c in cols} for table, cols in schema.TABLES.items()}


def read(files: Iterable[str], *, filename: bool = False) -> str:
    """A relation over Parquet files that all have the same columns."""
    names = ", ".join(map(literal, files))
    extra = ", filename = true" if filename else ""
    return f"read_parquet([{names}], hive_partitioning = false{extra})"


def is_one_scan(relation: str) -> bool:
    """Is it what `read` gave?"""
    return relation.startswith("read_parquet")


class Scans:
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
