"""What checks found, on disk: derived data that can be thrown away and made again.

    <run>/derived/<writer>-<n>/   checked.parquet, findings.parquet, derived.json

A unit is written under a temporary name and committed by one rename, like a segment. Whoever scans
writes it, never a training process. Of several rows about one rollout, that of the newest unit
counts. Now and then the units of a run are merged into `merged-<n>`, which names those it covers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from ..model.known import known
from ..model.schema import DERIVED
from . import disk, scans, small
from .paths import entries, is_dir, is_gone
from .tables import literal, path_literal, q
from .units import FileSum, copy, file_sums, parquet_trouble

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

AGAIN = "`rollscope scan` makes these findings again"

VERSION = 2
"""Of these tables. Units of another version are left alone: the scan makes its own."""

FOLDER = "derived"
INFO = "derived.json"
MERGED = "merged"

MANY = 24
"""Units of a run beyond which they are merged: readers open each of them."""

GRACE = 60.0
"""Seconds that merged units stay, so that running queries end undisturbed."""

LEFT_OVER = 3600.0
"""Seconds after which a temporary directory belongs to nobody any more."""


class CheckStamp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A check as it was when it looked."""

    version: int
    subject: str
    kind: str
    """`record`: is the record right? `behaviour`: what did the policy do? `run`: how does it go?"""
    means: str
    """What a finding of it means, in one sentence."""
    parameters: str = ""
    """In short, those that are not the defaults: other ones need another look."""


class Broken(msgspec.Struct, omit_defaults=True):
    """A check that raised an error instead of answering."""

    count: int
    error: str
    rollout: str | None = None
    """One of the rollouts."""


@known
class DerivedInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`derived.json`."""

    version: int = VERSION
    order: int = 0
    """Greater than that of every unit that its writer knew: the newest row about a rollout counts.
    """
    checks: dict[str, CheckStamp] = msgspec.field(default_factory=dict)
    """The checks that looked: all those of the subjects that it has rows of."""
    digest: int = 0
    """Version of the numbers in `digest`."""
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    files: dict[str, FileSum] = msgspec.field(default_factory=dict)
    """Checksums of its tables, by file name."""
    again: int = 0
    """Rows about rollouts that earlier units have rows about, too."""
    covers: list[str] = msgspec.field(default_factory=list)
    """Units that this one takes the place of."""
    broken: dict[str, Broken] = msgspec.field(default_factory=dict)


def by_subject(checks: Mapping[str, CheckStamp]) -> dict[str, dict[str, CheckStamp]]:
    """Checks by what they look at."""
    found: dict[str, dict[str, CheckStamp]] = {}
    for id, stamp in checks.items():
        found.setdefault(stamp.subject, {})[id] = stamp
    return found


class DerivedUnit(NamedTuple):
    directory: Path
    info: DerivedInfo

    @property
    def age(self) -> tuple[int, str]:
        """The greater one is the newer one."""
        return self.info.order, self.directory.name

    def file(self, table: str) -> Path:
        return self.directory / f"{table}.parquet"


DerivedCache = dict[str, DerivedUnit]
"""Units seen before, by path. They never change."""


def list_derived(run: Path, seen: DerivedCache, problems: dict[str, str]) -> dict[str, DerivedUnit]:
    """The units of a run that count, by path. What cannot be read is told in `problems`."""
    found: dict[str, DerivedUnit] = {}
    for name in _names(run, problems):
        path = run / FOLDER / name
        unit = seen.get(str(path)) or _read(path, problems)
        if unit is not None:
            found[str(path)] = seen[str(path)] = unit
    covered = {name for unit in found.values() for name in unit.info.covers}
    return {path: unit for path, unit in found.items() if unit.directory.name not in covered}


def _names(run: Path, problems: dict[str, str] | None = None) -> list[str]:
    return [e.name for e in entries(run / FOLDER, problems) if is_dir(e)]


def _read(path: Path, problems: dict[str, str]) -> DerivedUnit | None:
    try:
        info = small.load(path / INFO, DerivedInfo)
    except (OSError, ValueError) as error:
        if not is_gone(path):
            problems[str(path)] = f"{INFO} cannot be read ({error}); {AGAIN}"
        return None
    if info.version != VERSION:
        return None
    unit = DerivedUnit(path, info)
    for table in DERIVED:
        file = unit.file(table)
        trouble = parquet_trouble(file, info.files.get(file.name))
        if trouble is not None:
            if not is_gone(path):
                problems[str(file)] = f"{trouble}; {AGAIN}"
            return None
    return unit


def ddl(table: str) -> str:
    """The columns of a table as CREATE TABLE wants them."""
    return ", ".join(f"{q(column.name)} {column.type}" for column in DERIVED[table])


def columns(table: str, prefix: str = "") -> str:
    """The columns of a table as a list for SELECT."""
    return ", ".join(prefix + q(column.name) for column in DERIVED[table])


def read(table: str, units: Iterable[DerivedUnit], *, filename: bool = False) -> str | None:
    """A relation over the rows of these units; None: there are none."""
    files = [unit.file(table) for unit in units if unit.info.rows.get(table, 1)]
    return scans.read(files, filename=filename) if files else None


# -- writing -------------------------------------------------------------------------------

_ORDER = {
    "checked": "subject, step, rollout",
    "findings": '"check", step, rollout, message, start',
}
_GROUPS = "ROW_GROUP_SIZE 100000"


class DerivedWriter:
    """Takes rows of both tables, and writes them as one unit."""

    def __init__(self, run: Path, writer: str, number: int) -> None:
        self._run = run
        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        self._name = f"{writer}-{number}"
        self._temporary = folder / f".{self._name}-{os.urandom(4).hex()}"
        disk.make_dir(self._temporary)
        self._lines: dict[str, IO[bytes]] = {
            table: (self._temporary / f"{table}.ndjson").open("wb") for table in DERIVED
        }
        self.rows = dict.fromkeys(DERIVED, 0)

    def add(self, table: str, row: Mapping[str, object]) -> None:
        """A row, by column; what is not there is null."""
        self.write(table, msgspec.json.encode(row) + b"\n", 1)

    def write(self, table: str, lines: bytes, rows: int) -> None:
        """So many rows, as lines of JSON."""
        self._lines[table].write(lines)
        self.rows[table] += rows

    def commit(self, db: DuckDBPyConnection, info: DerivedInfo) -> bool:
        """Put the unit into its place. False: another one has that name."""
        try:
            for table, file in self._lines.items():
                file.close()
                lines = Path(file.name)
                types = ", ".join(f"{literal(c.name)}: {literal(c.type)}" for c in DERIVED[table])
                source = (
                    f"read_ndjson({path_literal(lines)}, columns = {{{types}}}, "
                    "hive_partitioning = false, maximum_object_size = 268435456)"
                )
                self._copy(db, table, source)
                lines.unlink()
            info.rows = dict(self.rows)
            return self._done(info)
        finally:
            self.discard()

    def merge(self, db: DuckDBPyConnection, sources: dict[str, str], info: DerivedInfo) -> bool:
        """The same with the rows of these relations instead."""
        try:
            for table, file in self._lines.items():
                file.close()
                Path(file.name).unlink()
                info.rows[table] = self._copy(db, table, sources[table])
            return self._done(info)
        finally:
            self.discard()

    def discard(self) -> None:
        for file in self._lines.values():
            file.close()
        if self._temporary.is_dir():
            disk.remove(self._temporary)

    def _copy(self, db: DuckDBPyConnection, table: str, source: str) -> int:
        select = f"SELECT {columns(table)} FROM {source} ORDER BY {_ORDER[table]}"
        return copy(db, select, self._temporary / f"{table}.parquet", _GROUPS)

    def _done(self, info: DerivedInfo) -> bool:
        info.files = file_sums(self._temporary, DERIVED)
        disk.write(self._temporary / INFO, small.pack(info))
        disk.sync(self._temporary)
        return disk.commit(self._temporary, self._run / FOLDER / self._name)


def next_merged(run: Path) -> int:
    """The number of the next merged unit."""
    names = (name.partition("-") for name in _names(run))
    return 1 + max((int(n) for head, _, n in names if head == MERGED and n.isdecimal()), default=0)


def sweep(run: Path, grace: float | None = None) -> None:
    """Remove what merged units cover, and what scans left behind that were killed."""
    grace = GRACE if grace is None else grace
    folder, units = run / FOLDER, [_read(run / FOLDER / name, {}) for name in _names(run)]
    for unit in units:
        if unit is not None and unit.info.covers and _age(unit.directory) >= grace:
            for name in unit.info.covers:
                if (folder / name).is_dir():
                    disk.remove(folder / name)
    for path in folder.glob(".*"):
        if path.name.startswith(".gone-") or (path.is_dir() and _age(path) > LEFT_OVER):
            disk.remove(path)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
