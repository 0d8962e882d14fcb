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
    trouble: str | None = None
    """What is wrong with its `run.json`."""


def find_runs(
    root: Path,
    known: dict[Path, RunInfo],
    problems: dict[str, str],
    only: Path | None = None,
) -> dict[Path, RunInfo]:
    """Every run, or the one in `only`, by directory; those known are not looked at again."""
    same = {str(directory): directory for directory in known}  # parsing a path costs as much again
    there = {
        same.get(entry.path) or Path(entry.path): entry.is_symlink() or project.is_symlink()
        for project in _directories(root, problems)
        for entry in _directories(project, problems)
    }
    found = {}
    for directory in _once(there, problems) if only is None else [only] if only.is_dir() else []:
        info = known.get(directory) or _read(directory)
        if info is not None:
            found[directory] = info
            if info.trouble is not None:
                problems[str(directory / "run.json")] = info.trouble
    return found


def _read(directory: Path) -> RunInfo | None:
    names = paths.read_run(directory)
    if names is not None:
        return RunInfo(names.project, names.run, directory)
    file = directory / "run.json"
    if paths.is_gone(file) and all(paths.is_gone(directory / part) for part in PARTS):
        return None
    trouble = "missing or unreadable; the names are those of the directories"
    return RunInfo(unquote(directory.parent.name), unquote(directory.name), directory, trouble)


def _directories(path: Path | os.DirEntry[str], problems: dict[str, str]) -> list[os.DirEntry[str]]:
    return [entry for entry in paths.entries(path, problems) if paths.is_dir(entry)]


def _once(directories: dict[Path, bool], problems: dict[str, str]) -> list[Path]:
    """Directories, each with whether it is a link, without links to those that are here already."""
    if not any(directories.values()):
        return list(directories)
    there = {directory.resolve() for directory, is_link in directories.items() if not is_link}
    found = []
    for directory, is_link in directories.items():
        if is_link and directory.resolve() in there:
            problems[str(directory)] = "a link to another run of this store; ignored"
        else:
            there.add(directory.resolve())
            found.append(directory)
    return found


def mark(directory: Path) -> object | None:
    """Equal to an earlier one if the run did not change since; None: it cannot be told yet."""
    stamps = [_stat(f"{directory}/{part}", "st_mtime_ns") for part in PARTS]
    if time.time() - max(stamps) / 1e9 < _TRUST:
        return None
    live = paths.entries(f"{directory}/live")
    return (*stamps, *((entry.name, _stat(entry, "st_size")) for entry in live))


def _stat(path: str | os.DirEntry[str], name: str) -> int:
    """For every run, at every look: `os.stat` takes a third of the time of `Path.stat`."""
    try:
        return int(getattr(os.stat(path), name))  # noqa: PTH116
    except OSError:
        return 0  # not there (any more), or it leads nowhere


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
