"""Sealed files as relations of the engine, from any version of the program.

Files are always named one by one: no globs, no partition guessing, whatever runs are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import duckdb
from duckdb import DuckDBPyConnection

from ..model import schema
from .tables import columns, literal, path_literal, q
from .units import FileSum, Unit, file_sum, fingerprint, parquet_trouble

_FIRST = 32
"""Files far away that are looked at first."""

_TYPES = {table: {c.name: c.type for c in cols} for table, cols in schema.TABLES.items()}


def read(files: Iterable[object], *, filename: bool = False) -> str:
    """A relation over Parquet files that all have the same columns."""
    names = ", ".join(map(path_literal, files))
    extra = ", filename = true" if filename else ""
    return f"read_parquet([{names}], hive_partitioning = false{extra})"


def damage(
    db: DuckDBPyConnection, path: Path, said: FileSum | None, *, at_sight: bool = False
) -> str | None:
    """What is wrong with a file, all of which is read, or `at_sight` only its two ends; None:
    nothing.

    A file of an older version has no checksum: it is good if the engine can read it.
    """
    if at_sight:
        return parquet_trouble(path, said)
    try:
        if said is not None:
            return None if file_sum(path) == said else "damaged: its checksum does not fit"
        db.execute(f"SELECT max(hash(t)) FROM {read([path])} t").fetchall()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except duckdb.Error as error:
        return f"damaged ({_first_line(error)})"
    return None


def is_one_scan(relation: str) -> bool:
    """Is it what `read` gave?"""
    return relation.startswith("read_parquet")


class Elsewhere(Protocol):
    """Where sealed files lie if not on this machine (`read.far.Far`)."""

    folder: Path
    """Where they would lie here."""
    prefix: str
    """What the engine puts before their path in the store."""

    def name(self, path: Path) -> str:
        """What the engine calls a file."""

    def trouble(self, path: Path, said: FileSum | None = None) -> str | None:
        """What is wrong with a file at first sight; None: nothing."""

    def told(self, error: Exception) -> None:
        """Raise why the place does not answer, if an error of the engine comes of that."""


class Scans:
    """Reads files of any version: by name, what is missing null, the rest ignored.

    Files with the same columns are one scan. One of them is opened to learn its columns; the
    others carry the same `fingerprint`.
    """

    def __init__(self, db: DuckDBPyConnection, far: Elsewhere | None = None) -> None:
        self._db = db
        self._far = far
        self._mine = fingerprint()
        self._selects: dict[tuple[str, str, int], tuple[str, str | None]] = {}
        """What to select from files of another version, and what of them is not shown."""
        self.ignored: dict[str, str] = {}
        """What is not shown of which file."""

    def relation(self, table: str, units: Iterable[Unit], *, filename: bool = False) -> str | None:
        """The rows of a table in these units, with exactly the columns of this version.

        None: none of them has that table. With `filename`, that column comes last.
        """
        mine = columns(table)
        groups: dict[str, list[str]] = {}
        for unit in units:
            if table in unit.tables:
                is_mine = unit.info.columns == self._mine
                select = mine if is_mine else self._by_name(table, unit)
                if select is not None:
                    groups.setdefault(select, []).append(self.name(unit.file(table)))
        if groups.keys() == {mine}:  # planning a SELECT of all columns takes half a millisecond
            return self._read(groups[mine], filename)
        extra = ", filename" if filename else ""
        scans = [
            f"SELECT {select}{extra} FROM {self._read(files, filename)}"
            for select, files in groups.items()
        ]
        return f"({' UNION ALL '.join(scans)})" if scans else None

    @property
    def is_far(self) -> bool:
        """Do the files lie on object storage? Then nobody reads them all to find one."""
        return self._far is not None

    def in_turn(self, units: list[Unit]) -> Iterator[list[Unit]]:
        """Units in the batches in which they are looked through for one thing: those far away in
        larger and larger ones, because each file costs a way there and back."""
        size = len(units) if self._far is None else _FIRST
        while units:
            yield units[:size]
            units, size = units[size:], size * 8

    def name(self, path: Path) -> str:
        """What the engine calls a sealed file."""
        return str(path) if self._far is None else self._far.name(path)

    def _read(self, files: list[str], filename: bool) -> str:
        relation = read(files, filename=filename)
        if self._far is None or not filename:
            return relation
        # Everybody knows files by where they would lie here.
        here = f"{literal(f'{self._far.folder}/')} || filename[{len(self._far.prefix) + 1}:]"
        return f"(SELECT * REPLACE ({here} AS filename) FROM {relation})"

    def size(self, unit: Unit, table: str) -> int:
        """Bytes of a table."""
        said = unit.info.files.get(unit.file(table).name)
        if said is not None or self._far is not None:
            return 0 if said is None else said.size
        return unit.file(table).stat().st_size

    def damage(self, path: Path, said: FileSum | None, *, at_sight: bool = False) -> str | None:
        """What is wrong with a sealed file; None: nothing."""
        if self._far is None:
            return damage(self._db, path, said, at_sight=at_sight)
        if at_sight:
            return self._far.trouble(path, said)
        try:
            self._db.execute(f"SELECT max(hash(t)) FROM {read([self.name(path)])} t").fetchall()
        except duckdb.Error as error:
            self._far.told(error)
            return f"damaged ({_first_line(error)})"
        return None

    def _by_name(self, table: str, unit: Unit) -> str | None:
        """What to select from a file of another version; None: it cannot be read."""
        path = self.name(unit.file(table))
        shape = (table, unit.info.columns or path, unit.info.version)
        if shape not in self._selects:
            try:
                found = self._db.execute(f"DESCRIBE SELECT * FROM {read([path])}").fetchall()
            except duckdb.Error as error:
                if self._far is not None:
                    self._far.told(error)
                if "No such file" in str(error) or not (self._far or unit.file(table).exists()):
                    raise FileNotFoundError(path) from error
                self.ignored[path] = f"cannot be read ({_first_line(error)})"
                return None
            types = {name: type for name, type, *_ in found}
            self._selects[shape] = _select(table, types), _not_shown(table, types, unit)
        select, not_shown = self._selects[shape]
        if not_shown is not None:
            self.ignored[path] = not_shown
        return select


def _select(table: str, found: dict[str, str]) -> str:
    """The columns of this version out of those that were found."""
    picked = []
    for name, type in _TYPES[table].items():
        if name not in found:
            picked.append(f"CAST(NULL AS {type}) AS {q(name)}")
        elif found[name] == type:
            picked.append(q(name))
        else:
            picked.append(f"TRY_CAST({q(name)} AS {type}) AS {q(name)}")
    return ", ".join(picked)


def _not_shown(table: str, found: dict[str, str], unit: Unit) -> str | None:
    unknown = sorted(set(found) - set(_TYPES[table]))
    version = unit.info.version
    if version <= schema.VERSION and not unknown:
        return None
    what = f"columns not shown: {', '.join(unknown)}" if unknown else "all columns known"
    if version == schema.VERSION:
        return what
    return f"format {version}, this program knows {schema.VERSION}; {what}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
