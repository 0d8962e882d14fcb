"""What checks found, for queries: tables and views over the derived units of all runs.

    checked     one row a rollout and subject, of the newest unit that has one
    findings    the findings of these rows
    flagged     ("check", rollout): what was found and nobody dismissed; small, in memory

A `flag:` term and the flags of a shown page are looked up in `flagged`. So the view `rollouts`
costs the same with findings as without.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from duckdb import DuckDBPyConnection

from ...model.schema import DERIVED
from ..derived import (
    AGAIN,
    FOLDER,
    CheckStamp,
    DerivedCache,
    DerivedUnit,
    by_subject,
    columns,
    ddl,
    list_derived,
    read,
)
from ..derived_merge import KEY, UNIT
from ..engine import FAILURES
from ..fold import LAST_FACT
from ..scans import damage
from ..tables import literal, one
from .contents import Contents
from .watching import WatchedRuns

_TRUST = 2.0
"""Seconds. A directory that changed so recently may change again within the same clock tick."""

_DAMAGED = f"damaged; {AGAIN}"


class Found:
    """Keeps the views true. One thread at a time may refresh; any may read."""

    def __init__(self, db: DuckDBPyConnection, watching: WatchedRuns, contents: Contents) -> None:
        self._db = db
        self._watching = watching
        self._contents = contents
        self.changes = 0
        """Goes up whenever something changed."""
        self.units: dict[Path, dict[str, DerivedUnit]] = {}
        """Those that count, by run directory and path."""
        self.any = False
        """Was anything found?"""
        self._seen: DerivedCache = {}
        self._marks: dict[Path, int] = {}
        self._said: set[str] = set()
        """Sealed units whose annotated flags are known."""
        self._facts_at = -1
        self._broken: set[str] = set()
        self._problems: dict[Path, dict[str, str]] = {}
        db.execute("CREATE SCHEMA flags")
        db.execute('CREATE TABLE flags.found ("check" VARCHAR, rollout VARCHAR, subject VARCHAR, '
                   "unit VARCHAR)")  # fmt: skip
        db.execute("CREATE TABLE flags.stale (unit VARCHAR, subject VARCHAR, key VARCHAR)")
        db.execute('CREATE TABLE flags.dismissed ("check" VARCHAR, rollout VARCHAR)')
        db.execute(
            "CREATE TABLE flags.said (unit VARCHAR, rollout VARCHAR, name VARCHAR, value VARCHAR, "
            "time DOUBLE, writer VARCHAR, n BIGINT)"
        )
        db.execute(
            'CREATE VIEW flagged AS SELECT "check", rollout FROM flags.found '
            'ANTI JOIN flags.dismissed USING ("check", rollout)'
        )
        db.execute('CREATE TABLE flags.looked (unit VARCHAR, "check" VARCHAR, subject VARCHAR)')
        for table in DERIVED:
            db.execute(f"CREATE TABLE flags.{table} (filename VARCHAR, {ddl(table)})")
        self._make_views()

    @property
    def all_units(self) -> list[DerivedUnit]:
        return [unit for units in self.units.values() for unit in units.values()]

    @property
    def checks(self) -> dict[str, CheckStamp]:
        """The checks that have looked at anything, each in its newest version."""
        found: dict[str, CheckStamp] = {}
        for unit in sorted(self.all_units, key=lambda unit: unit.info.order):
            for id, stamp in unit.info.checks.items():
                if id not in found or found[id].version <= stamp.version:
                    found[id] = stamp
        return found

    @property
    def looked(self) -> dict[str, dict[str, dict[str, CheckStamp]]]:
        """The checks that looked, by unit and subject."""
        return {str(unit.directory): by_subject(unit.info.checks) for unit in self.all_units}

    def problems(self) -> dict[str, str]:
        """What could not be read, by path."""
        return {path: text for found in self._problems.values() for path, text in found.items()}

    def refresh(self) -> bool:
        """See what changed. Returns whether anything did."""
        changed = self._look()
        is_news = any(self.units.get(run, {}) != now for run, now in changed.items())
        facts = self._contents.changes
        if not is_news and (facts == self._facts_at or not self.units):
            return False
        self._db.begin()
        try:
            before = {run: self.units.get(run, {}) for run in changed}
            units = {run: now for run, now in {**self.units, **changed}.items() if now}
            for run, now in changed.items():
                self._take_in(before[run], now)
            dismissed = self._dismiss() if units else False
            if is_news:
                self._make_views([unit for found in units.values() for unit in found.values()])
            found = bool(one(self._db, "SELECT count(*) FROM flags.found"))
            self._db.commit()
        except FAILURES:
            self._undo()
            if self._find_broken(changed.values()):
                return self.refresh()
            raise
        except BaseException:
            self._undo()
            raise
        self.units, self.any, self._facts_at = units, found, facts
        self.changes += is_news or dismissed
        return is_news or dismissed

    def _undo(self) -> None:
        self._db.rollback()
        self._db.execute("DELETE FROM flags.said")
        self._said.clear()
        self._marks.clear()

    def find_broken(self, *, at_sight: bool = False) -> bool:
        """Read every file and leave out those that cannot be. Are there any new ones?"""
        return self._find_broken(self.units.values(), at_sight)

    def _find_broken(self, units: Iterable[dict[str, DerivedUnit]], at_sight: bool = False) -> bool:
        found = set()
        for unit in (unit for of_run in units for unit in of_run.values()):
            said = {unit.file(table): unit.info.files.get(f"{table}.parquet") for table in DERIVED}
            if any(damage(self._db, path, said[path], at_sight=at_sight) for path in said):
                found.add(str(unit.directory))
        found -= self._broken
        self._broken |= found
        self._marks.clear()
        return bool(found)

    def forget(self) -> None:
        """Look at everything again next time."""
        self._marks.clear()

    # -- what lies there -----------------------------------------------------------------------

    def _look(self) -> dict[Path, dict[str, DerivedUnit]]:
        """The units of the runs that may have changed; none of a run that is gone."""
        found: dict[Path, dict[str, DerivedUnit]] = {}
        for run in self._watching.runs:
            try:
                now = os.stat(f"{run}/{FOLDER}").st_mtime_ns  # noqa: PTH116 - for speed
            except OSError:
                now = 0
            if now == self._marks.get(run):
                continue
            problems: dict[str, str] = {}
            units = list_derived(run, self._seen, problems) if now else {}
            found[run] = {path: u for path, u in units.items() if path not in self._broken}
            broken = dict.fromkeys(self._broken & units.keys(), _DAMAGED)
            self._problems[run] = problems | broken
            if time.time() - now / 1e9 >= _TRUST:
                self._marks[run] = now
            else:
                self._marks.pop(run, None)
        for run in set(self.units) - set(self._watching.runs):
            found[run] = {}
            self._marks.pop(run, None)
            self._problems.pop(run, None)
        return found

    # -- tables --------------------------------------------------------------------------------

    def _take_in(self, before: dict[str, DerivedUnit], now: dict[str, DerivedUnit]) -> None:
        """Bring the tables to the units of one run."""
        gone = before.keys() - now.keys()
        new = [unit for path, unit in now.items() if path not in before]
        for table in ("found", "stale") if gone else ():
            self._db.execute(
                f"DELETE FROM flags.{table} WHERE unit IN (SELECT unnest(?))", [sorted(gone)]
            )
        newest = max((u.age for path, u in now.items() if path in before), default=(-1, ""))
        overlapping = [unit for unit in new if unit.info.again or unit.age < newest or len(new) > 1]
        if overlapping and len(now) > 1:
            self._find_stale(overlapping, list(now.values()))
        source = read("checked", new, filename=True)
        if source is not None:
            self._db.execute(
                f"INSERT INTO flags.found SELECT unnest(found), rollout, subject, {UNIT} "
                f"FROM {source} c WHERE len(found) > 0 AND rollout IS NOT NULL AND NOT EXISTS "
                f"(SELECT 1 FROM flags.stale s WHERE s.unit = {UNIT} AND s.subject = c.subject "
                "AND s.key = c.rollout)"
            )

    def _find_stale(self, overlapping: list[DerivedUnit], units: list[DerivedUnit]) -> None:
        """Rows of which a newer unit has one about the same."""
        db = self._db
        db.execute("CREATE OR REPLACE TEMP TABLE ages (unit VARCHAR, place INTEGER)")
        ordered = sorted(units, key=lambda unit: unit.age)
        db.executemany(
            "INSERT INTO ages VALUES (?, ?)",
            [[str(unit.directory), place] for place, unit in enumerate(ordered)],
        )
        db.execute(
            "CREATE OR REPLACE TEMP TABLE renewed AS SELECT DISTINCT subject, "
            f"{KEY} AS key FROM {read('checked', overlapping)}"
        )
        every = read("checked", units, filename=True)
        db.execute(
            "CREATE OR REPLACE TEMP TABLE outdated AS SELECT unit, subject, key FROM "
            f"(SELECT {UNIT} AS unit, subject, {KEY} AS key FROM {every}) "
            "SEMI JOIN renewed USING (subject, key) JOIN ages USING (unit) "
            "QUALIFY row_number() OVER (PARTITION BY subject, key ORDER BY place DESC) > 1"
        )
        db.execute("DELETE FROM flags.stale s WHERE s.unit IN (SELECT unit FROM ages) AND "
                   "(s.subject, s.key) IN (SELECT (subject, key) FROM renewed)")  # fmt: skip
        db.execute("INSERT INTO flags.stale SELECT unit, subject, key FROM outdated")
        db.execute(
            "DELETE FROM flags.found f WHERE (f.unit, f.subject, f.rollout) IN "
            "(SELECT (unit, subject, key) FROM outdated)"
        )

    def _make_views(self, units: Iterable[DerivedUnit] = ()) -> None:
        db, units = self._db, list(units)
        is_stale = bool(one(db, "SELECT count(*) FROM flags.stale"))
        for table, view in (("checked", "flags.rows"), ("findings", "flags.told")):
            source = read(table, units, filename=True)
            where = ""
            if source is not None and is_stale:
                where = (
                    f" WHERE NOT EXISTS (SELECT 1 FROM flags.stale s WHERE s.unit = {UNIT} "
                    f"AND s.subject = d.subject AND s.key = {KEY})"
                )
            db.execute(
                f"CREATE OR REPLACE VIEW {view} AS SELECT {UNIT} AS unit, {columns(table)} "
                f"FROM {source or f'flags.{table}'} d{where}"
            )
            db.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT {columns(table)} FROM {view}")
        db.execute("DELETE FROM flags.looked")
        looked = [
            [str(unit.directory), id, stamp.subject]
            for unit in units
            for id, stamp in unit.info.checks.items()
        ]
        if looked:
            db.executemany("INSERT INTO flags.looked VALUES (?, ?, ?)", looked)

    # -- what people said ----------------------------------------------------------------------

    def _dismiss(self) -> bool:
        """Work out again which findings were dismissed. Did that change?"""
        db, contents = self._db, self._contents
        before = _all(db, "SELECT * FROM flags.dismissed ORDER BY ALL")
        gone = sorted(self._said - contents.units.keys())
        if gone:
            db.execute("DELETE FROM flags.said WHERE unit IN (SELECT unnest(?))", [gone])
        new = [unit for path, unit in contents.units.items() if path not in self._said]
        relation = contents.scans.relation("facts", new, filename=True)
        if relation is not None:
            db.execute(f"INSERT INTO flags.said SELECT {_said(UNIT)} FROM {relation} {_ABOUT}")
        self._said = set(contents.units)
        every = "SELECT * FROM flags.said"
        if "facts" in contents.filled:
            every += f" UNION ALL SELECT {_said(literal('live'))} FROM tail.facts {_ABOUT}"
        db.execute("DELETE FROM flags.dismissed")
        db.execute(
            "INSERT INTO flags.dismissed SELECT name[6:], rollout FROM (SELECT * FROM "
            f"({every}) QUALIFY row_number() OVER (PARTITION BY rollout, name "
            f"ORDER BY {LAST_FACT}) = 1) WHERE value = 'false'"
        )
        return before != _all(db, "SELECT * FROM flags.dismissed ORDER BY ALL")


_ABOUT = "WHERE starts_with(name, 'flag.') AND message IS NULL AND value IS NOT NULL"


def _said(unit: str) -> str:
    return (
        f"{unit} AS unit, rollout, name, json_extract_string(value, '$') AS value, "
        '"time", writer, n'
    )


def _all(db: DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    return db.execute(sql).fetchall()
