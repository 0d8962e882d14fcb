"""What the store holds, as tables and views of the engine.

Sealed files are read where they lie; the live tail and what is late are tables beside them. All
of it changes in one transaction, so that a running query goes on over what it began with.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
from duckdb import DuckDBPyConnection

from ...model import schema
from .. import writers
from ..listing import LiveLog
from ..scans import Scans, is_one_scan
from ..tables import one
from ..units import Times, Unit
from . import superseded, views
from .gathered import Gathered
from .late import Late
from .tail import FollowedLog, Tail
from .watching import WatchedRun, WatchedRuns

if TYPE_CHECKING:  # it needs packages that only readers of a bucket have
    from .far import Far

_LIVE = ("patched", "homes", "late", "rollouts", "messages", "spans", "facts", "metrics")
"""Tables of the tail that are asked only if they have rows."""


class StoreProblem(NamedTuple):
    """Something in the store that could not be read, or was not shown."""

    path: str
    text: str


class Part(NamedTuple):
    """Some of the view of rollouts."""

    select: str
    """Its rows."""
    left: int
    """Rows of files that are left out, none of which is superseded."""
    before: float
    """No time of a row that is left out lies after this."""

    def over(self, sql: str) -> str:
        """A statement, asked of this part."""
        return f"WITH rollouts AS ({self.select}) {sql}"


class Contents:
    """The last seen state of a store. One thread at a time may change it; any may read it."""

    def __init__(
        self,
        db: DuckDBPyConnection,
        watching: WatchedRuns,
        temporary: Path,
        far: Far | None = None,
    ) -> None:
        self._db = db
        self._watching = watching
        self.scans = Scans(db, far)
        self.units: dict[str, Unit] = {}
        """Sealed files, by their directory."""
        self.filled: frozenset[str] = frozenset()
        """Tables of the tail that have rows."""
        self.changes = 0
        """Goes up before anything changes and again after. While it is odd, Python and the engine
        may disagree."""
        self.one_scan = False
        """Is the view `rollouts` one scan of files and nothing else? Then the engine sorts it
        without reading all columns."""
        self.plain: list[Unit] = []
        """The units whose rows of rollouts are shown as they are; the newest first."""
        self._beside: Callable[[str | None], str]
        self._tail = Tail(db, temporary)
        self._late = Late(db, self.scans)
        self.gathered = Gathered(db, self.scans, temporary)
        self._checked: set[str] = set()
        """Units some of whose rows are not shown as they lie there."""
        self.homes: str | None = None
        """Which sealed row lies in which file."""
        db.execute("CREATE TABLE tail.hidden (project VARCHAR, run VARCHAR, id VARCHAR)")
        self._make_views({}, set(), self.filled)

    def refresh(self) -> bool:
        """See what changed. Returns whether anything did."""
        changed = self._watching.look()
        units, logs = self._watching.found()
        gone_logs = {
            path
            for path, log in self._tail.logs.items()
            if path not in logs or logs[path][1].size < log.offset
        }
        grown = [
            (directory, live)
            for path, (directory, live) in logs.items()
            if path in gone_logs or self._tail.size(path) != live.size
        ]
        if not (gone_logs or grown or units != self.units):
            self._gather()
            return False
        kept = self._tail.snapshot(), self._late.snapshot()
        self.changes += 1
        try:
            self._db.begin()
            filled = self._take_in(units, gone_logs, grown, changed)
            self._db.commit()
            self.units, self.filled = units, filled
        except BaseException:
            self._db.rollback()
            self._tail.restore(kept[0])
            self._late.restore(kept[1])
            raise
        finally:
            self.changes += 1
        if grown:
            self._tail.clear()
        if gone_logs:
            self._give_memory_back()
        return True

    def _take_in(
        self,
        units: dict[str, Unit],
        gone_logs: set[str],
        grown: list[tuple[Path, LiveLog]],
        changed: list[WatchedRun],
    ) -> frozenset[str]:
        """Bring the engine's tables and views to the state of these units and logs.

        Returns the tables of the tail that have rows.
        """
        late, tail = self._late, self._tail
        late.begin()
        if gone_logs:
            numbers = ", ".join(str(tail.logs[path].number) for path in gone_logs)
            late.touch_facts(f"tail.facts WHERE log IN ({numbers})")
            tail.drop(gone_logs)
            late.touch_changed()
        if grown:
            tail.follow(grown)
            late.touch_facts("staged_facts")
            late.touch_changed()
        late.drop({path for path, unit in self.units.items() if units.get(path) != unit})
        news = [unit for path, unit in units.items() if self.units.get(path) != unit]
        if tail.logs:
            late.find_again(news, list(units.values()))
        late.add(news)
        checked = late.settle(list(units.values()))
        restarts = []
        for run in changed:
            found = self._restarts(run)
            if found or run.restarted:
                restarts.append((run, found))
            run.restarted = bool(found)
        for run in self._watching.runs.values():
            if run.restarted and run.files is not None:
                checked |= set(run.files.units)
        filled = frozenset(table for table in _LIVE if self._any(f"tail.{table}"))
        self.gathered.follow(units)
        self._make_views(units, checked, filled)
        for run, found in restarts:
            superseded.hide(self._db, run.info.project, run.info.run, found)
        return filled

    def _gather(self) -> None:
        """Questions wait for the number of files: let there be fewer. What is shown stays."""
        due = self.gathered.due(self.units)
        if due and self.gathered.gather(due):
            self._make_rollouts(self.units, self._checked, self.filled)

    def _any(self, relation: str) -> bool:
        return bool(one(self._db, f"SELECT count(*) FROM {relation}"))

    def _make_views(
        self, units: dict[str, Unit], checked: set[str], filled: frozenset[str]
    ) -> None:
        for table in schema.TABLES:
            if table != "rollouts":
                sealed = self.scans.relation(table, units.values())
                self._db.execute(views.body_view(table, sealed, live=table in filled))
        self._make_rollouts(units, checked, filled)

    def _make_rollouts(
        self, units: dict[str, Unit], checked: set[str], filled: frozenset[str]
    ) -> None:
        self._checked = checked
        self.homes = self.gathered.homes(units)
        plain, looked = self.gathered.instead(units, checked)
        files = self.scans.relation("rollouts", plain)
        rest = {
            "live": "rollouts" in filled,
            "patched": "patched" in filled,
            "hidden": any(run.restarted for run in self._watching.runs.values()),
        }
        checked_files = self.scans.relation("rollouts", looked)
        self._db.execute(views.rollouts_view(files, checked_files, **rest))
        self.plain = plain
        self._beside = lambda newest: views.rollouts_select(newest, checked_files, **rest)
        beside = bool(looked) or not filled.isdisjoint(("rollouts", "patched"))
        self.one_scan = files is not None and is_one_scan(files) and not beside

    def part(self, count: int) -> Part:
        """The view of rollouts over the newest `count` of the files that it shows as they are, and
        everything else that it shows."""
        shown, left = self.plain[:count], self.plain[count:]
        before = [unit.last if unit.info.launches else math.inf for unit in left]
        return Part(
            self._beside(self.scans.relation("rollouts", shown)),
            sum(unit.info.rows.get("rollouts", 0) for unit in left),
            max(before, default=-math.inf),
        )

    def _restarts(self, run: WatchedRun) -> list[superseded.Restart]:
        """Which launches of a run began after which, from every place that knows of them."""
        found: dict[str, Times] = {}

        def add(launch: str | None, times: Times) -> None:
            if launch is not None:
                found[launch] = found.get(launch, Times()) | times

        for unit in run.files.units.values() if run.files else ():
            for launch, times in unit.info.launches.items():
                add(launch, times)
        for live in run.files.logs.values() if run.files else ():
            log = self._tail.logs.get(str(live.path))
            if log is not None and log.header is not None:
                add(log.header.launch, Times(log.header.started, log.header.started))
        if len(found) < 2 or run.files is None:
            return []
        for launch, begin, last in self._db.execute(
            "SELECT launch, min(time), max(time) FROM tail.rollouts "
            "WHERE project = ? AND run = ? GROUP BY launch",
            [run.info.project, run.info.run],
        ).fetchall():
            add(launch, Times(begin, last))
        infos = writers.read_infos(run.info.directory).values()
        for info in infos:
            if info.launch in found:
                add(info.launch, Times(info.started, info.last_write))
        return superseded.restarts(found, run.files, infos)

    def _give_memory_back(self) -> None:
        """Rows of sealed logs were deleted. Their memory is freed when nobody reads."""
        with contextlib.suppress(duckdb.Error):  # somebody does: next time
            self._db.execute("CHECKPOINT")

    def problems(self) -> list[StoreProblem]:
        """Every file, or part of one, that is not shown, and why."""
        found = self._watching.problems()
        logs = list(self._tail.logs.values())
        is_damaged = any(unit.info.damaged for unit in self.units.values())
        infos = self._infos() if is_damaged or any(log.is_unread for log in logs) else []
        torn = {log: offset for _, info in infos for log, offset in info.torn.items()}
        ends = {(run, log): end for run, info in infos for log, end in info.ends.items()}
        for path, unit in self.units.items():
            for bad in unit.info.damaged:
                if bad.offset >= torn.get(bad.log, math.inf):
                    continue  # what stood there lies in another log
                found[f"{path}: {bad.log}"] = (
                    f"bytes {bad.offset} to {bad.end} of the log were {bad.error}; kept aside"
                )
            if unit.info.bad_lines:
                found[path] = f"{unit.info.bad_lines} lines of the log were no JSON"
        for log in logs:
            found |= _log_problems(log, ends.get((log.directory, log.name), 0))
        found |= self.scans.ignored
        return [StoreProblem(path, text) for path, text in sorted(found.items())]

    def _infos(self) -> list[tuple[Path, writers.WriterInfo]]:
        """Every writer, with the directory of its run."""
        runs = list(self._watching.runs)
        return [(run, info) for run in runs for info in writers.read_infos(run).values()]

    def find_broken(self, said: str, *, at_sight: bool = False) -> bool:
        """Read the files that the error names, or all, and leave out those that cannot be.

        Returns whether there are any. `at_sight`: of each file, look at the two ends only.
        """
        files = {
            unit.file(table): unit.info.files.get(unit.file(table).name)
            for unit in self._watching.found()[0].values()
            for table in unit.tables
        }
        count = len(self._watching.broken)
        named = [path for path in files if self.scans.name(path) in said]
        for path in named or ([] if self.scans.is_far else files):
            why = self.scans.damage(path, files[path], at_sight=at_sight)
            if why is not None:
                self._watching.broken[str(path)] = f"{why}; not shown"
        return len(self._watching.broken) > count


def _log_problems(log: FollowedLog, end: int) -> dict[str, str]:
    """What is wrong with a live log, by where. `end`: how far its writer says it is written."""
    found = {
        f"{log.path}: bytes {bad.offset} to {bad.end}": f"{bad.error}; skipped"
        for bad in log.damaged
    }
    if log.offset < end and log.is_unread and log.is_stuck(end):
        found[f"{log.path}: bytes {log.offset} to {end}"] = "damaged; not shown"
    if log.trouble is not None:
        found[f"{log.path}: {log.name}"] = f"{log.trouble}; what it holds is not shown"
    if log.bad_lines:
        found[str(log.path)] = f"{log.bad_lines} lines are no JSON; skipped"
    if log.header is not None and log.header.version > schema.VERSION:
        found[f"{log.path}: version"] = (
            f"written by a newer Rollscope (format {log.header.version}, this one knows "
            f"{schema.VERSION}); what only that one knows is not shown"
        )
    return found
