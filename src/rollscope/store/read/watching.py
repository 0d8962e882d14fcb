"""What lies in a store now: its runs, each listed again only when it may have changed."""

from __future__ import annotations

from pathlib import Path

from ..listing import LiveLog, RunFiles, UnitCache, list_run
from ..runs import RunInfo, find_runs, mark
from ..units import Trouble, Unit


class WatchedRun:
    """What is known of one run."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.files: RunFiles | None = None
        self.seen: UnitCache = {}
        self.mark: object | None = None
        self.restarted = False
        """May one of its launches have superseded rollouts of another?"""


class WatchedRuns:
    """All runs of a store, or only the one in the directory `only`."""

    def __init__(
        self, root: Path, only: Path | None = None, trouble_of: Trouble | None = None
    ) -> None:
        self._root = root
        self._trouble_of = trouble_of
        self._only = only
        self.runs: dict[Path, WatchedRun] = {}
        """By directory."""
        self.broken: dict[str, str] = {}
        """Files that proved unreadable, and why."""
        self._problems: dict[str, str] = {}

    def look(self) -> list[WatchedRun]:
        """List the runs that may have changed; returns them."""
        known = {directory: run.info for directory, run in self.runs.items()}
        self._problems = {}
        runs = find_runs(self._root, known, self._problems, self._only)
        self.runs = {
            directory: self.runs.get(directory) or WatchedRun(info)
            for directory, info in runs.items()
        }
        changed = []
        for directory, run in self.runs.items():
            now = mark(directory)
            if now is None or now != run.mark:
                run.files, run.mark = list_run(directory, run.seen, self._trouble_of), now
                changed.append(run)
        return changed

    def forget(self) -> None:
        """Something moved on while we looked: list everything again next time."""
        for run in self.runs.values():
            run.mark = None

    def found(self) -> tuple[dict[str, Unit], dict[str, tuple[Path, LiveLog]]]:
        """The units, and the live logs with their runs' directories, that count; by path."""
        units: dict[str, Unit] = {}
        logs: dict[str, tuple[Path, LiveLog]] = {}
        for directory, run in self.runs.items():
            if run.files is not None:
                units |= run.files.units
                logs |= {str(log.path): (directory, log) for log in run.files.logs.values()}
        for path, unit in units.items() if self.broken else ():
            whole = tuple(t for t in unit.tables if str(unit.file(t)) not in self.broken)
            units[path] = unit._replace(tables=whole)
        # Newest first: sorted by time, the engine then prunes almost every file.
        newest = sorted(units.items(), key=lambda item: item[1].last, reverse=True)
        return dict(newest), logs

    def problems(self) -> dict[str, str]:
        """What could not be read, by path."""
        found = self._problems | self.broken
        for run in list(self.runs.values()):
            found |= run.files.problems if run.files else {}
        return found
