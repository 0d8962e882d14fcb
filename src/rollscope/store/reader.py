"""Reading a store: one consistent view over everything that lies in it, kept fresh.

    reader = Reader(root)
    reader.refresh()                       # cheap when nothing changed
    reader.connection.execute("SELECT count(*) FROM rollouts WHERE reward > 0.5")
    reader.get(id)                         # whole, late facts folded in

The views `rollouts`, `messages`, `spans`, `facts`, `metrics` have exactly the columns of
`model.schema` (`rollouts` one more: `superseded`) over all runs: sealed, merged and live.

**Threads.** `connection` is a connection of the calling thread; `cursor()` makes another.
`refresh` may be called by any thread: it changes everything in one transaction, so a running
query goes on over what it began with. A file may go away under a long query (compaction,
`rm`): `reading` repeats the work over the new files; use it wherever that matters.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import duckdb
from duckdb import DuckDBPyConnection

from ..model import Message, Rollout, Span, schema
from . import paths, superseded, views, writers
from .asking import asker
from .bodies import Bodies, Opened, Sketch
from .engine import clean_up, configuration, confine, connect, is_of_a_file
from .late import Late
from .listing import LiveLog
from .many import ManyBodies, Whole
from .runs import RunInfo
from .tables import one
from .tail import Log, Tail
from .units import Times, Unit
from .watching import Watched, Watching

T = TypeVar("T")

_TRIES = 50

_FIRST_PIECE, _LARGEST_PIECE = 8 << 20, 128 << 20
"""Bytes. The first hits of a search show early, and large pieces keep both cores busy."""
_LIVE = ("patched", "places", "late", "rollouts", "messages", "spans", "facts", "metrics")
"""Tables of the tail that are asked only if they have rows."""
_LIVE_ROW = 2000
"""Bytes that a row of the tail counts for."""


class Problem(NamedTuple):
    """Something in the store that could not be read, or was not shown."""

    path: str
    text: str


class Piece(NamedTuple):
    """A part of a table."""

    relation: str
    size: int
    """Bytes, about."""


class Reader:
    """Reads a store. Close it, or use it as a context manager."""

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        threads: int | None = None,
        memory: int | None = None,
        only: Path | None = None,
    ) -> None:
        """`threads` and `memory` (bytes) bound the engine; `only` is the directory of the one
        run that is read."""
        self.root = Path(root).expanduser().absolute() if root is not None else paths.root()
        self.temporary = temporary = Path(tempfile.mkdtemp(prefix="rollscope-"))
        """A directory that goes with the reader. Besides the store the only one it may touch."""
        self._database = connect(configuration(temporary, threads, memory))
        # GLOBAL: without it a setting of an extension holds for this one connection alone.
        self._database.execute("SET GLOBAL parquet_metadata_cache = true")
        # Fetching columns ahead is for files far away. Here it only copies: a million numbers of
        # two columns are read in 18 ms of CPU instead of 26 without it.
        self._database.execute("SET GLOBAL disable_parquet_prefetching = true")
        confine(self._database, [self.root, temporary])
        self._finalizer = weakref.finalize(self, clean_up, self._database, temporary)
        self._local = threading.local()
        self._lock = threading.RLock()
        self._version = 0
        self._watching = Watching(self.root, only)
        self._units: dict[str, Unit] = {}
        self._filled: frozenset[str] = frozenset()
        self.one_scan = False
        """Is the view `rollouts` one scan of files and nothing else? Then the engine sorts it
        without reading all columns."""
        self._db = self._database.cursor()
        self._shapes = views.Shapes(self._db)
        self._tail = Tail(self._db, temporary)
        self._late = Late(self._db, self._shapes)
        self._db.execute("CREATE TABLE tail.hidden (project VARCHAR, run VARCHAR, id VARCHAR)")
        self._make_views({}, set(), self._filled)
        self.refresh()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back memory and temporary files."""
        self._finalizer()

    # -- what is asked ---------------------------------------------------------------------

    @property
    def connection(self) -> DuckDBPyConnection:
        """A connection of this thread to the views."""
        if not hasattr(self._local, "connection"):
            self._local.connection = self.cursor()
        connection: DuckDBPyConnection = self._local.connection
        return connection

    def cursor(self) -> DuckDBPyConnection:
        """A new connection to the views. One thread may use it at a time."""
        made = self._database.cursor()
        if (mine := asker()) is not None:
            mine.take(made)
        return made

    def reading(self, work: Callable[[DuckDBPyConnection], T]) -> T:
        """`work(connection)`, repeated over fresh files if one vanished or proves damaged."""
        for attempt in range(_TRIES):
            version = self.version
            try:
                # Whoever may leave gets a connection of his own, so that only he is interrupted.
                return work(self.connection if asker() is None else self.cursor())
            except (duckdb.Error, FileNotFoundError) as error:
                if attempt == _TRIES - 1 or not self.recovers(error, version):
                    raise
        raise AssertionError("unreachable")

    def recovers(self, error: Exception, since: int) -> bool:
        """A query failed: may it succeed over what the store is now? `since` is the `version`
        at which it began."""
        return is_of_a_file(error) and self._recover(error, since)

    def get(self, id: str) -> Rollout | None:
        """A whole rollout, late facts folded in. Opens only the files that hold it."""
        return self._steadily(lambda bodies: bodies.rollout(id))

    def opened(self, id: str, most: int) -> Opened | None:
        """A rollout with its thin row; only that row if it has more than `most` messages."""
        return self._steadily(lambda bodies: bodies.opened(id, most))

    def many(self, ids: Sequence[str]) -> list[Whole]:
        """Whole rollouts in this order: one look into each file for all of them."""
        return self._steadily(lambda bodies: bodies.many(ids))

    def messages(self, id: str, first: int = 0, stop: int | None = None) -> list[Message]:
        """Messages `first` up to, not including, `stop` of a rollout; the rest is not loaded."""

        def work(bodies: Bodies) -> list[Message]:
            place = bodies.find(id)
            return [] if place is None else bodies.messages(id, place.homes, first, stop)

        return self._steadily(work)

    def outline(self, id: str) -> list[Sketch]:
        """Every message of a rollout in a few words and numbers, without its body."""

        def work(bodies: Bodies) -> list[Sketch]:
            place = bodies.find(id)
            return [] if place is None else bodies.outline(id, place.homes)

        return self._steadily(work)

    def spans(self, id: str) -> list[Span]:
        """All spans of a rollout."""

        def work(bodies: Bodies) -> list[Span]:
            place = bodies.find(id)
            return [] if place is None else bodies.spans(id, place.homes)

        return self._steadily(work)

    def _steadily(self, work: Callable[[ManyBodies], T]) -> T:
        """`work` over one state of the store: again, if a refresh came in between."""
        while True:
            version = self._version
            result = self.reading(
                lambda db: work(
                    ManyBodies(db, self._shapes, list(self._units.values()), self._filled)
                )
            )
            if version == self._version and version % 2 == 0:
                return result
            with self._lock:
                pass  # wait for the refresh that is under way

    def runs(self) -> list[RunInfo]:
        """Every run, under its true name."""
        return [run.info for run in self._watching.runs.values()]

    def files(self, table: str) -> list[str]:
        """The exact list of sealed files of a table, for other engines."""
        return [str(unit.file(table)) for unit in self._units.values() if table in unit.tables]

    def pieces(self, table: str) -> tuple[DuckDBPyConnection, list[Piece]]:
        """A table in pieces, the newest first and each larger than the one before.

        Together they hold every row once, over the connection that comes with them, which
        keeps to this state of the store until it is closed.
        """
        with self._lock:
            db = self.cursor()
            db.begin()
            live = int(one(db, f"SELECT count(*) FROM tail.{table}")) * _LIVE_ROW
            units = [unit for unit in self._units.values() if table in unit.tables]
        made = [Piece(f"tail.{table}", live)] if live else []
        wanted, batch, size = _FIRST_PIECE, list[Unit](), 0
        for number, unit in enumerate(units):
            batch.append(unit)
            size += unit.file(table).stat().st_size
            if size >= wanted or number == len(units) - 1:
                relation = self._shapes.relation(table, batch)
                made += [Piece(relation, size)] if relation is not None else []
                wanted, batch, size = min(2 * wanted, _LARGEST_PIECE), [], 0
        return db, made

    def problems(self) -> list[Problem]:
        """Every file, or part of one, that is not shown, and why."""
        found = self._watching.problems()
        for path, unit in self._units.items():
            for bad in unit.info.damaged:
                found[f"{path}: {bad.log}"] = (
                    f"bytes {bad.offset} to {bad.end} of the log were {bad.error}; kept aside"
                )
            if unit.info.bad_lines:
                found[path] = f"{unit.info.bad_lines} lines of the log were no JSON"
        for log in list(self._tail.logs.values()):
            found |= _log_problems(log)
        found |= self._shapes.ignored
        return [Problem(path, text) for path, text in sorted(found.items())]

    def writers(self) -> list[writers.WriterInfo]:
        """Every process that wrote, of all runs."""
        return [
            info
            for run in self._watching.runs.values()
            for info in writers.read_infos(run.info.directory).values()
        ]

    # -- keeping up ------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Goes up whenever `refresh` has found something new."""
        return self._version // 2

    def is_still(self, version: int) -> bool:
        """Is the store as it was in that version, and nothing of it just changing?"""
        return self._version == 2 * version

    def refresh(self) -> bool:
        """See what changed in the store. Returns whether anything did."""
        with self._lock:
            for attempt in range(_TRIES):
                try:
                    return self._refresh()
                except (FileNotFoundError, duckdb.IOException):
                    if attempt == _TRIES - 1:
                        raise
                    self._watching.forget()
                    time.sleep(0.001 * attempt)
        return False

    def _refresh(self) -> bool:
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
        if not (gone_logs or grown or units != self._units):
            return False
        kept = self._tail.snapshot(), self._late.snapshot()
        self._version += 1  # odd: what lies in Python and in the engine may not agree
        try:
            self._db.begin()
            filled = self._take_in(units, gone_logs, grown, changed)
            self._db.commit()
            self._units, self._filled = units, filled
        except BaseException:
            self._db.rollback()
            self._tail.restore(kept[0])
            self._late.restore(kept[1])
            raise
        finally:
            self._version += 1
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
        changed: list[Watched],
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
        late.drop({path for path, unit in self._units.items() if units.get(path) != unit})
        late.add([unit for path, unit in units.items() if self._units.get(path) != unit])
        checked = late.settle(list(units.values()))
        launches = [(run, self._launches(run)) for run in changed]
        for run, times in launches:
            run.restarted = superseded.may_supersede(times)
        for run in self._watching.runs.values():
            if run.restarted and run.files is not None:
                checked |= set(run.files.units)
        filled = frozenset(table for table in _LIVE if self._any(f"tail.{table}"))
        self._make_views(units, checked, filled)
        for run, times in launches:
            superseded.hide(self._db, run.info.project, run.info.run, times)
        return filled

    def _any(self, relation: str) -> bool:
        return bool(one(self._db, f"SELECT count(*) FROM {relation}"))

    def _make_views(
        self, units: dict[str, Unit], checked: set[str], filled: frozenset[str]
    ) -> None:
        for table in schema.TABLES:
            if table != "rollouts":
                sealed = self._shapes.relation(table, units.values())
                self._db.execute(views.body_view(table, sealed, live=table in filled))
        plain = [unit for path, unit in units.items() if path not in checked]
        looked = [unit for path, unit in units.items() if path in checked]
        files = self._shapes.relation("rollouts", plain)
        self._db.execute(
            views.rollouts_view(
                files,
                self._shapes.relation("rollouts", looked),
                live="rollouts" in filled,
                patched="patched" in filled,
                hidden=any(run.restarted for run in self._watching.runs.values()),
            )
        )
        beside = bool(looked) or not filled.isdisjoint(("rollouts", "patched"))
        self.one_scan = files is not None and views.is_one_scan(files) and not beside

    # -- looking at the disk ---------------------------------------------------------------

    def _launches(self, run: Watched) -> dict[str, Times]:
        """The launches of a run, from every place that knows of them."""
        found: dict[str, Times] = {}

        def add(launch: str | None, times: Times) -> None:
            if launch is not None:
                found[launch] = found.get(launch, Times()) | times

        for unit in run.files.units.values() if run.files else ():
            for launch, times in unit.info.launches.items():
                add(launch, times)
        mine = [log for log in self._tail.logs.values() if log.directory == run.info.directory]
        for log in mine:
            if log.header is not None:
                add(log.header.launch, Times(log.header.started, log.header.started))
        if len(found) < 2:
            return found
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
        return superseded.without_completed(found, infos)

    def _give_memory_back(self) -> None:
        """Rows of sealed logs were deleted; their memory goes when nobody reads."""
        with contextlib.suppress(duckdb.Error):  # somebody does: next time
            self._db.execute("CHECKPOINT")

    # -- when a query fails ----------------------------------------------------------------

    def _recover(self, error: Exception, version: int) -> bool:
        """After a failed query: did anything change, so that it is worth another try?"""
        with self._lock:
            if self.version != version:
                return True  # somebody else has looked meanwhile
            self._watching.forget()
            return self.refresh() or (self._find_broken(str(error)) and self.refresh())

    def _find_broken(self, said: str) -> bool:
        """Read the files that the error names, or all, and leave out those that cannot be.

        Returns whether there are any.
        """
        files = [str(unit.file(t)) for unit in self._units.values() for t in unit.tables]
        count = len(self._watching.broken)
        for path in [path for path in files if path in said] or files:
            try:
                self._db.execute(f"SELECT max(hash(t)) FROM {views.read([path])} t").fetchall()
            except duckdb.Error as error:
                self._watching.broken[path] = (
                    f"damaged; not shown ({str(error).splitlines()[0][:200]})"
                )
        return len(self._watching.broken) > count


def _log_problems(log: Log) -> dict[str, str]:
    """What is wrong with a live log, by where."""
    found = {
        f"{log.path}: bytes {bad.offset} to {bad.end}": f"{bad.error}; skipped"
        for bad in log.damaged
    }
    if log.bad_lines:
        found[str(log.path)] = f"{log.bad_lines} lines are no JSON; skipped"
    if log.header is not None and log.header.version > schema.VERSION:
        found[f"{log.path}: version"] = (
            f"written by a newer Rollscope (format {log.header.version}, this one knows "
            f"{schema.VERSION}); what only that one knows is not shown"
        )
    return found
