"""The runs of a store: finding them, telling whether one changed, removing one."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from . import disk, paths

PARTS = ("live", "segments", "merged")

_TRUST = 2.0
"""Seconds. A directory that changed so recently may change again within the same clock tick."""


class RunInfo(NamedTuple):
    """A run of the store, under its true names."""

    project: str
    run: str
    directory: Path


def find_runs(
    root: Path, known: dict[Path, RunInfo], only: Path | None = None
) -> dict[Path, RunInfo]:
    """Every run, or the one in `only`, by directory; those known are not looked at again."""
    there = (d for project in _directories(root) for d in _directories(project))
    found = {}
    for directory in there if only is None else [only] if only.is_dir() else []:
        info = known.get(directory) or _read(directory)
        if info is not None:
            found[directory] = info
    return found


def _read(directory: Path) -> RunInfo | None:
    names = paths.read_run(directory)
    if names is not None:
        return RunInfo(names.project, names.run, directory)
    if any((directory / part).is_dir() for part in PARTS):  # run.json was lost
        return RunInfo(unquote(directory.parent.name), unquote(directory.name), directory)
    return None


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return [path / name for name in sorted(names)]


def mark(directory: Path) -> object | None:
    """Equal to an earlier one if the run did not change since; None: it cannot be told yet."""
    stamps = []
    for part in PARTS:
        try:
            stamps.append((directory / part).stat().st_mtime_ns)
        except FileNotFoundError:
            stamps.append(0)
    if time.time() - max(stamps) / 1e9 < _TRUST:
        return None
    sizes = []
    try:
        with os.scandir(directory / "live") as entries:
            sizes = sorted((entry.name, entry.stat().st_size) for entry in entries)
    except FileNotFoundError:
        pass  # no live directory, or a log was sealed just now: its directory's time tells
    return (*stamps, *sizes)


def remove_run(root: Path, project: str, run: str) -> bool:
    """Remove a run with all that was recorded. False: there is no such run.

    A process that still writes to it begins it again with its next record.
    """
    directory = paths.run_dir(root, project, run)
    if not directory.is_dir():
        return False
    disk.remove(directory)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()  # the project, if that was its last run
    return True
