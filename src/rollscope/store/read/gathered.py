"""Thin rows of many small files, gathered into few that the reader keeps for itself.

A file costs each question 0.1 to 0.2 ms, however few rows it has: questions to a job that seals
all day, or to a thousand finished runs, would take as long as there are files. So once as many
questions were asked of a file as copying its rows costs, they are copied, with those of others,
into the reader's temporary directory, and the views read that. Whole rollouts are read where they
lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
from duckdb import DuckDBPyConnection

from ...model import schema
from ..scans import Scans, read
from ..tables import literal
from ..units import Unit, UnitInfo, fingerprint

_FEW = 16
"""Files that nobody feels."""

_LARGE = 10_000
"""Rows of a file that costs more for what is in it than for being one."""

_AT_ONCE = 50_000
"""Rows that are copied at a time: a fifth of a second."""


class Copy(NamedTuple):
    """A file with the thin rows of several units, and one that tells which row is whose."""

    units: dict[str, Unit]
    """By their directory."""
    thin: Unit
    homes: Path


class Gathered:
    """What was copied. One thread at a time may change it."""

    def __init__(self, db: DuckDBPyConnection, scans: Scans, temporary: Path) -> None:
        self.asked = 0
        """Questions so far."""
        self._db = db
        self._scans = scans
        self._temporary = temporary
        self._since: dict[str, int] = {}
        """How many questions there had been when a unit was first seen."""
        self._copies: list[Copy] = []
        self._made = 0

    def follow(self, units: Mapping[str, Unit]) -> None:
        """These units count from now on: a copy counts as long as all of its units do."""
        self._since = {path: self._since.get(path, self.asked) for path in units}
        for copy in list(self._copies):
            if any(units.get(path) != unit for path, unit in copy.units.items()):
                self._copies.remove(copy)
                self._remove(copy)

    def due(self, units: Mapping[str, Unit]) -> list[Unit]:
        """The units whose rows are worth copying now, if they are many."""
        if self._scans.is_far:
            return []  # all columns of all files would come here
        copied = {path for copy in self._copies for path in copy.units}
        found, rows = list[Unit](), 0
        for path, unit in units.items():
            count = unit.info.rows.get("rollouts", _LARGE)
            if path in copied or "rollouts" not in unit.tables or count >= _LARGE:
                continue
            if self.asked - self._since.get(path, self.asked) < 3 + count // 40:
                continue
            found.append(unit)
            rows += count
            if rows >= _AT_ONCE:
                break
        return found if len(found) > _FEW else []

    def gather(self, units: list[Unit]) -> bool:
        """Copy their rows. Returns whether that was possible."""
        held = {str(unit.directory): unit for unit in units}
        directory = self._temporary / f"gathered-{self._made}"
        self._made += 1
        info = UnitInfo(version=schema.VERSION, columns=fingerprint(), logs={})
        copy = Copy(held, Unit(directory, info, ("rollouts",)), directory / "homes.parquet")
        rows = self._scans.relation("rollouts", units)
        located = self._scans.relation("rollouts", units, filename=True)
        try:
            directory.mkdir()
            self._copy(f"SELECT * FROM {rows}", copy.thin.file("rollouts"))
            self._copy(f"SELECT id, filename FROM {located}", copy.homes)
        except (OSError, duckdb.Error):  # the disk is full, a file is damaged: then without
            self._remove(copy)
            self._since |= dict.fromkeys(held, 1 << 62)
            return False
        self._copies.append(copy)
        return True

    def instead(
        self, units: Mapping[str, Unit], checked: set[str]
    ) -> tuple[list[Unit], list[Unit]]:
        """What to read for the thin rows of these units: plain ones, and those to be checked."""
        plain, looked, left = list[Unit](), list[Unit](), dict(units)
        for copy in self._copies:
            (plain if checked.isdisjoint(copy.units) else looked).append(copy.thin)
            for path in copy.units:
                del left[path]
        for path, unit in left.items():
            (looked if path in checked else plain).append(unit)
        return plain, looked

    def homes(self, units: Mapping[str, Unit]) -> str | None:
        """Which row lies in which file (`id`, `filename`); None: there are no rows."""
        copied = {path for copy in self._copies for path in copy.units}
        left = [unit for path, unit in units.items() if path not in copied]
        rest = self._scans.relation("rollouts", left, filename=True)
        parts = [f"SELECT id, filename FROM {rest}"] if rest is not None else []
        if self._copies:
            parts.append(f"SELECT id, filename FROM {read(copy.homes for copy in self._copies)}")
        return f"({' UNION ALL '.join(parts)})" if parts else None

    def _copy(self, select: str, path: Path) -> None:
        # Smaller row groups would be one for each file that is copied.
        self._db.execute(
            f"COPY ({select}) TO {literal(str(path))} (FORMAT parquet, ROW_GROUP_SIZE 8192)"
        )

    def _remove(self, copy: Copy) -> None:
        for path in (copy.thin.file("rollouts"), copy.homes):
            path.unlink(missing_ok=True)
