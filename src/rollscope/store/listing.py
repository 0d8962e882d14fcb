"""Which files of a run count: the consistent view.

Live logs are listed first, then segments, then merged. Data that moves on while we look moves in
that direction, and disappears from its old place only after it has arrived, so nothing is missed.
Each log is taken from only one place, the last one it has reached, so nothing is
seen twice.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..model import schema
from ..model.known import known
from . import paths, small
from .units import Trouble, Unit, read_unit

COVERS = "covers.json"


@known
class Covers(msgspec.Struct, kw_only=True):
    """`merged/<n>/covers.json`."""

    version: int
    logs: dict[str, int]
    """Every log that was ever merged into this run's parts, and how many bytes of it."""
    parts: list[str]
    """Directories beside this file: the units that hold them."""


class LiveLog(NamedTuple):
    name: str
    path: Path
    size: int
    begin: int = 0
    """Where to begin: what lies before is sealed."""


class RunFiles(NamedTuple):
    """What a run consists of at one moment."""

    number: int | None
    """Of the newest merged directory."""
    covers: Covers
    units: dict[str, Unit]
    """Units that count, by path."""
    logs: dict[str, LiveLog]
    """Live logs that count, by name."""
    spare: dict[str, Path]
    """Segments that do not count because `covers` has their log."""
    problems: dict[str, str]
    """What could not be read, by path."""


UnitCache = dict[str, Unit]
"""Units seen before, by path. They never change, so they are looked at once."""


class Moved(Exception):
    """Something went on its way between two looks: list again."""


def list_run(
    directory: Path, cache: UnitCache | None = None, trouble_of: Trouble | None = None
) -> RunFiles:
    """The files of a run that count now."""
    cache = {} if cache is None else cache
    while True:
        try:
            return _list_once(directory, cache, trouble_of)
        except Moved:
            continue


def _list_once(directory: Path, cache: UnitCache, trouble_of: Trouble | None) -> RunFiles:
    problems: dict[str, str] = {}
    live = _list_live(directory / "live", problems)
    segments = _list_segments(directory / "segments", problems)
    number, covers, merged = _newest_merged(directory / "merged", problems)
    units: dict[str, Unit] = {}
    spare: dict[str, Path] = {}
    for part in covers.parts:
        if _take(merged / part, units, cache, problems, trouble_of) is None:
            if paths.is_gone(merged):
                raise Moved  # a newer one took its place
            problems[str(merged / part)] = f"missing, but {COVERS} names it: is it being copied?"
    for name, path in segments.items():
        if name in covers.logs:
            spare[name] = path
            continue
        unit = _take(path, {}, cache, problems, trouble_of)
        if unit is None:
            raise Moved
        if unit.info.logs and name not in unit.info.logs:
            problems[str(path)] = "a copy of another segment; ignored"
            continue
        log = live.get(name)
        # A log that grew after it was sealed holds all that its segment holds, and more.
        if log is not None and log.size > unit.info.logs.get(name, -1):
            continue
        units[str(path)] = unit
        live.pop(name, None)
    logs = {}
    for name, log in live.items():
        begin = covers.logs.get(name, 0)
        if name not in covers.logs or log.size > begin:
            logs[name] = log._replace(begin=begin)
    for gone in set(cache) - set(units):
        if paths.is_gone(Path(gone)):
            del cache[gone]
    return RunFiles(number, covers, units, logs, spare, problems)


def taken(directory: Path, log: str) -> int | None:
    """How many bytes of a log are sealed in this run; None: it is not sealed.

    A writer asks this if its log was removed, to know what it must write again.
    """
    unit = read_unit(directory / "segments" / log, {})
    if unit is not None and log in unit.info.logs:
        return unit.info.logs[log]
    while True:
        try:
            return _newest_merged(directory / "merged", {})[1].logs.get(log)
        except Moved:
            continue


def _take(
    path: Path,
    units: dict[str, Unit],
    cache: UnitCache,
    problems: dict[str, str],
    trouble_of: Trouble | None,
) -> Unit | None:
    """Look at a unit once; a unit with trouble is looked at, and told, each time. None: gone."""
    unit = cache.get(str(path))
    if unit is None:
        trouble: dict[str, str] = {}
        unit = read_unit(path, trouble, trouble_of)
        if unit is None:
            return None
        problems |= trouble
        if not trouble:
            cache[str(path)] = unit
    units[str(path)] = unit
    return unit


def _list_live(directory: Path, problems: dict[str, str]) -> dict[str, LiveLog]:
    logs = {}
    for entry in paths.entries(directory, problems):
        name, path = entry.name.removesuffix(paths.LOG_ENDING), Path(entry.path)
        try:
            found = path.stat()
        except FileNotFoundError:
            if entry.is_symlink():
                problems[entry.path] = "a link that leads nowhere; ignored"
            continue  # sealed a moment ago: it is found below
        except OSError as error:
            problems[entry.path] = f"cannot be opened ({error.strerror})"
            continue
        is_log = name != entry.name and paths.split_log_name(name) is not None
        if is_log and stat.S_ISREG(found.st_mode):
            logs[name] = LiveLog(name, path, found.st_size)
        else:
            problems[entry.path] = "not a log of Rollscope; ignored"
    return logs


def _list_segments(directory: Path, problems: dict[str, str]) -> dict[str, Path]:
    segments = {}
    for entry in paths.entries(directory, problems):
        if paths.split_log_name(entry.name) is not None and paths.is_dir(entry):
            segments[entry.name] = Path(entry.path)
        else:
            problems[entry.path] = "not a segment of Rollscope; ignored"
    return segments


def _newest_merged(directory: Path, problems: dict[str, str]) -> tuple[int | None, Covers, Path]:
    """Number, covers and path of the newest merged directory that can be read."""
    numbers = paths.numbered(directory, problems)
    newest = max(numbers, default=None)
    for number in sorted(numbers, reverse=True):
        path = directory / str(number)
        covers = _read_covers(path, problems)
        if covers is not None:
            return newest, covers, path
    return newest, Covers(version=schema.VERSION, logs={}, parts=[]), directory


def _read_covers(merged: Path, problems: dict[str, str]) -> Covers | None:
    path = merged / COVERS
    try:
        return small.load(path, Covers)
    except (OSError, ValueError) as error:
        if paths.is_gone(merged):
            raise Moved from None  # a newer one took its place
        problems[str(path)] = f"cannot be read ({error}); worked out from the parts beside it"
    parts = [entry.name for entry in paths.entries(merged) if paths.is_dir(entry)]
    units = [unit for part in parts if (unit := read_unit(merged / part, {})) is not None]
    logs = {log: size for unit in units for log, size in unit.info.logs.items()}
    return Covers(version=schema.VERSION, logs=logs, parts=parts) if logs else None
