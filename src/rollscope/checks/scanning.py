"""Scanning: checks look at what nobody has looked at yet, and what they find is kept.

A scan can be stopped at any time: what it has finished stays, and the next one goes on from there.
It only reads rollouts and writes beside them, so it may run while training goes on. It never runs
in a training process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import groupby, islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from ..query import Store
from ..query.runs import live
from ..store.derived import Broken, DerivedInfo, DerivedUnit, DerivedWriter
from ..store.derived_merge import merge
from ..store.engine import connect
from ..store.runs import RunInfo
from ..store.writers import new_writer
from . import unlooked, worker
from .check import Subject
from .digest import VERSION as DIGEST
from .grouped import look_at_groups
from .locking import Busy, alone
from .look import Panel
from .settings import FILE, Settings
from .stepped import look_at_steps, news, step_rows
from .unlooked import Unlooked, UnlookedGroup
from .worker import Looked, Looker, look, look_on_ray, prepare

T = TypeVar("T", Unlooked, UnlookedGroup)

Units = Mapping[Path, Mapping[str, DerivedUnit]]
"""What lies beside each run, by path."""

COMMIT = 20.0
"""Seconds of work after which it is kept."""

PIECE = 16_384
"""Rollouts that a process looks at before it tells what it found. A file is read from one end to
the other for each piece: with 256, that took ten times as long as the checks."""

Progress = Callable[[int, int], None]
"""Called with how many rollouts were looked at, of how many."""


class ScanReport(msgspec.Struct):
    """What a scan did."""

    rollouts: int = 0
    """Looked at."""
    groups: int = 0
    findings: int = 0
    broken: dict[str, Broken] = msgspec.field(default_factory=dict)
    """Checks that raised an error instead of answering."""
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    """Runs that were left alone, and why."""


def scan(
    store: Store,
    query: str = "",
    *,
    processes: int = 1,
    progress: Progress | None = None,
    settings: Settings | None = None,
    on_ray: bool = False,
) -> ScanReport:
    """Look at all rollouts of a selection that nobody has looked at as they are now.

    `processes` look at different rollouts at once; `on_ray`, the nodes of a Ray cluster do.
    `settings` takes the place of `checks.toml`.
    """
    with Scan(store, processes, settings, on_ray=on_ray) as made:
        return made.run(query, progress or (lambda done, total: None))


class Scan:
    """Scans a store, again and again if one likes. Close it, or use it as a context manager."""

    def __init__(
        self,
        store: Store,
        processes: int = 1,
        settings: Settings | None = None,
        *,
        on_ray: bool = False,
    ) -> None:
        self._on_ray = on_ray
        self._store = store
        self._root = Path(store.reader.root)
        self._processes = _cpus() if on_ray else processes
        self._given = settings
        self._settings = settings or Settings(self._root / FILE)
        self._report = ScanReport()
        self._writer = new_writer()
        self._number = 0
        self._engine = connect({"threads": 1})
        self._pool: Executor | None = None
        self._looker: Looker | None = None

    def __enter__(self) -> Scan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end_looker()
        self._end_processes()
        self._engine.close()

    def run(self, query: str = "", progress: Progress = lambda done, total: None) -> ScanReport:
        """One scan."""
        self._report = ScanReport()
        self._settings = self._given or Settings(self._root / FILE)
        compiled, reader = self._store.query(query), self._store.reader

        def unlooked_rollouts() -> list[Unlooked]:
            current = self._current("rollout")
            return reader.reading(lambda db: unlooked.rollouts(db.cursor(), compiled, current))

        rollouts, before = unlooked_rollouts(), reader.found.units
        told = _Told(progress, len(rollouts))
        try:
            for place, mine in _by_run(rollouts):
                left = partial(self._left, mine, before, unlooked_rollouts)
                self._at(place, partial(self._rollouts, left, told))
        finally:
            self._end_processes()
        self._store.refresh()
        written = live(reader.writers())
        places = reader.reading(lambda db: unlooked.places(db.cursor(), compiled))
        lived = {place: place in written for place in places}

        def unlooked_groups() -> list[UnlookedGroup]:
            current = self._current("rollout"), self._current("group")
            return reader.reading(lambda db: unlooked.groups(db.cursor(), lived, current))

        groups, before = unlooked_groups(), reader.found.units
        for place, ours in _by_run(groups):
            self._at(
                place, partial(self._groups, partial(self._left, ours, before, unlooked_groups))
            )
        self._store.refresh()
        for place in sorted(places):
            self._at(place, partial(self._steps, lived[place]))
            self._at(place, self._tidy)
        return self._report

    def _at(self, place: unlooked.Place, work: Callable[[RunInfo], None]) -> None:
        """Work on a run, if nobody else does and it can be written."""
        for run in self._store.reader.runs():
            if (run.project, run.run) == place:
                try:
                    with alone(run.directory):
                        work(run)
                except (Busy, OSError) as why:
                    self._report.skipped["/".join(place)] = str(why)

    def _left(
        self, todo: list[T], before: Units, again: Callable[[], list[T]], run: RunInfo
    ) -> list[T]:
        """What is still to do in a run, now that nobody else can work on it: others may have done
        it since it was listed, and findings must not be told twice."""
        self._store.refresh()
        if self._store.reader.found.units.get(run.directory) == before.get(run.directory):
            return todo
        return [one for one in again() if one.place == (run.project, run.run)]

    # -- rollouts ------------------------------------------------------------------------------

    def _rollouts(
        self, left: Callable[[RunInfo], list[Unlooked]], told: _Told, run: RunInfo
    ) -> None:
        panel, todo = self._panel(run), left(run)
        known = {rollout.id: rollout for rollout in todo}
        writer, since, again = self._begin(run), time.monotonic(), 0
        try:
            for ids, looked in self._looked(run, _pieces(todo, self._processes)):
                writer.write("checked", looked.checked, looked.rollouts)
                writer.write("findings", looked.findings, looked.found)
                self._report.rollouts += looked.rollouts
                self._report.findings += looked.found
                panel.merge_broken(looked.broken)
                again += sum(known[id].again for id in ids)
                told.more(len(ids))
                if time.monotonic() - since > COMMIT:
                    self._commit(run, panel, "rollout", writer, again)
                    writer, since, again = self._begin(run), time.monotonic(), 0
        except BaseException:
            # What is finished is kept: the next scan goes on from there.
            with contextlib.suppress(Exception):
                self._commit(run, panel, "rollout", writer, again)
            raise
        self._commit(run, panel, "rollout", writer, again)

    def _looked(
        self, run: RunInfo, pieces: Iterable[Sequence[Unlooked]]
    ) -> Iterator[tuple[list[str], Looked]]:
        """What was found in each piece, as it comes."""
        place = (str(self._root), str(run.directory), run.project)
        if self._on_ray:
            yield from self._looked_on_ray(place, pieces)
            return
        if self._processes <= 1:
            if self._looker is None or self._looker.place != place:
                self._end_looker()
                reader = self._store.reader
                self._looker = Looker(place, self._given, reader if reader.threads == 1 else None)
            for piece in pieces:
                yield [u.id for u in piece], self._looker.look(_signatures(piece))
            return
        if self._pool is None:
            # Started anew, not forked: the engine has threads.
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(self._processes, context, prepare)
        waiting: dict[Future[Looked], list[str]] = {}
        left = iter(pieces)
        while True:
            for piece in islice(left, 2 * self._processes - len(waiting)):
                future = self._pool.submit(look, place, _signatures(piece))
                waiting[future] = [u.id for u in piece]
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()

    def _looked_on_ray(
        self, place: worker.Place, pieces: Iterable[Sequence[Unlooked]]
    ) -> Iterator[tuple[list[str], Looked]]:
        from ..store.read import on_ray

        there, given = on_ray.place(self._store.reader), self._given
        asked = [(there, place, given, _signatures(piece)) for piece in pieces]
        for looked, (*_, signatures) in zip(on_ray.mapped(look_on_ray, asked), asked, strict=True):
            yield list(signatures), looked

    def _end_looker(self) -> None:
        if self._looker is not None:
            self._looker.close()
            self._looker = None

    def _end_processes(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    # -- groups --------------------------------------------------------------------------------

    def _groups(self, left: Callable[[RunInfo], list[UnlookedGroup]], run: RunInfo) -> None:
        todo = left(run)
        if not todo:
            return
        panel, writer = self._panel(run), self._begin(run)
        for table, row in look_at_groups(self._store, todo, panel):
            writer.add(table, row)
            self._report.findings += table == "findings"
        self._report.groups += len(todo)
        self._commit(run, panel, "group", writer, sum(group.again for group in todo))

    # -- steps ---------------------------------------------------------------------------------

    def _steps(self, is_live: bool, run: RunInfo) -> None:
        panel, place = self._panel(run), (run.project, run.run)
        looked = look_at_steps(self._store, place, panel, is_live=is_live)
        reader = self._store.reader
        fresh = reader.reading(lambda db: news(db.cursor(), place, looked))
        if fresh or panel.broken:
            writer = self._begin(run)
            for table, row in step_rows(place, fresh):
                writer.add(table, row)
                self._report.findings += table == "findings"
            self._commit(run, panel, "step", writer, len(fresh))

    # -- what is written -----------------------------------------------------------------------

    def _panel(self, run: RunInfo) -> Panel:
        return Panel(self._settings.bound(run.project))

    def _units(self, run: RunInfo) -> list[DerivedUnit]:
        return list(self._store.reader.found.units.get(run.directory, {}).values())

    def _current(self, subject: Subject) -> list[str]:
        """The units of all runs whose answers the checks of today would give again."""
        return [
            unit
            for run in self._store.reader.runs()
            for unit in unlooked.current_units(self._units(run), self._panel(run).stamps(subject))
        ]

    def _begin(self, run: RunInfo) -> DerivedWriter:
        self._number += 1
        return DerivedWriter(run.directory, self._writer, self._number)

    def _commit(
        self, run: RunInfo, panel: Panel, subject: Subject, writer: DerivedWriter, again: int
    ) -> None:
        broken = panel.told_broken()
        for id, found in broken.items():
            before = self._report.broken[id].count if id in self._report.broken else 0
            self._report.broken[id] = msgspec.structs.replace(found, count=found.count + before)
        panel.broken.clear()
        if not writer.rows["checked"]:
            writer.discard()
            return
        self._store.refresh()
        order = 1 + max((unit.info.order for unit in self._units(run)), default=0)
        info = DerivedInfo(
            order=order, checks=panel.stamps(subject), digest=DIGEST, again=again, broken=broken
        )
        writer.commit(self._engine, info)

    def _tidy(self, run: RunInfo) -> None:
        """Few units are read faster than many."""
        self._store.refresh()
        merge(self._engine, run.directory, self._units(run), self._settings.off(run.project))


class _Told:
    """How far a scan is."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._done, self._total = 0, total
        progress(0, total)

    def more(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._total)


def _by_run(todo: Iterable[T]) -> Iterator[tuple[unlooked.Place, list[T]]]:
    ordered = sorted(todo, key=lambda one: one.place)
    for place, of_run in groupby(ordered, key=lambda one: one.place):
        yield place, list(of_run)


def _pieces(rollouts: Sequence[Unlooked], processes: int) -> Iterator[list[Unlooked]]:
    """Rollouts that are looked at together: many short ones, or few long ones."""
    weights = [1 + rollout.messages // 8 for rollout in rollouts]
    most = min(PIECE, max(256, sum(weights) // (2 * max(1, processes))))
    piece: list[Unlooked] = []
    size = 0
    for rollout, weight in zip(rollouts, weights, strict=True):
        piece.append(rollout)
        size += weight
        if size >= most:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _cpus() -> int:
    from ..store.read.on_ray import connect

    return connect()


def _signatures(piece: Sequence[Unlooked]) -> dict[str, str]:
    return {rollout.id: rollout.signature for rollout in piece}
