"""Compaction: many small segments become few large parts, facts folded in.

A new `merged/<n+1>/` holds everything that was merged before and everything merged now. Parts that
did not change are linked, not copied. The rename into its place is the commit: only one process can
win, and the loser starts again from the newest state. Sources are removed after a grace time, and
only if the newest merged directory covers them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import msgspec

from ...model import schema
from .. import disk, paths, scans, small, writers
from ..listing import COVERS, Covers, RunFiles, list_run
from ..units import Unit
from .merge import Merger, PlannedPart
from .segment import CannotSeal, connect, remove_log, seal

PART = 128 << 20
"""Bytes of a part, about: large enough that a million rollouts are some ten files."""

MANY = 200
"""Segments beyond which readers begin to feel their number (0.13 ms a file and page)."""

UNFOLDED = 20_000
"""Late facts in segments beyond which readers begin to feel them: each takes 15 µs to open."""

AT_WORK = 600.0
"""Seconds in which a compaction that is under way has written its next part."""

GRACE = 60.0
"""Seconds that merged sources stay, so that running queries end undisturbed."""

LEFT_OVER = 3600.0
"""Seconds after which a temporary directory belongs to nobody any more."""


class Report(msgspec.Struct, kw_only=True):
    """What a compaction did."""

    sealed: list[str] = msgspec.field(default_factory=list)
    """Logs of dead writers that were sealed."""
    merged: int = 0
    """Segments and small parts that became part of larger ones."""
    parts: int = 0
    """Parts of the run now."""
    refused: list[str] = msgspec.field(default_factory=list)
    """What was left alone, and why."""

    def refuse(self, why: object) -> None:
        if str(why) not in self.refused:
            self.refused.append(str(why))


def wants_compaction(files: RunFiles) -> bool:
    """Has the run so many segments, or so many facts to fold, that reading suffers?"""
    segments = [unit for unit in files.units.values() if unit.directory.parent.name == "segments"]
    return len(segments) > MANY or sum(unit.info.late_facts for unit in segments) > UNFOLDED


def is_compacting(directory: Path) -> bool:
    """Is another process at it? One that died is not waited for longer than a part takes."""
    return any(_age(path) < AT_WORK for path in (directory / "merged").glob(".[0-9]*"))


def compact(
    directory: Path,
    *,
    watch: writers.Watch | None = None,
    grace: float = GRACE,
    part_bytes: int = PART,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Seal the logs of dead writers, merge small units, and remove what was merged.

    Keep one `watch` over several calls to notice writers on other machines that died.
    """
    report, tell = Report(), progress or (lambda text: None)
    try:
        for log in dead_logs(directory, watch or writers.Watch()):
            tell(f"sealing {log}")
            _seal_dead(directory, log, report)
        broken: dict[str, str] = {}
        while not _merge_once(directory, part_bytes, report, tell, broken):
            pass
        sweep(directory, grace)
    except (OSError, duckdb.Error) as error:  # other runs shall be compacted all the same
        report.refuse(f"{directory}: {error}")
    return report


def _seal_dead(directory: Path, log: str, report: Report) -> None:
    try:
        if seal(directory, log):
            report.sealed.append(log)
    except FileNotFoundError:
        pass  # its writer's own sealer was faster
    except (CannotSeal, OSError, duckdb.Error) as why:
        report.refuse(why)


def dead_logs(directory: Path, watch: writers.Watch) -> list[str]:
    """Live logs that nobody will write to any more and that are not sealed."""
    infos = writers.read_infos(directory)
    dead = {writer: watch.is_dead(info) for writer, info in infos.items()}
    found = []
    for name in sorted(list_run(directory).logs):
        names = paths.split_log_name(name)
        if names is None or (directory / "segments" / name).exists():
            continue  # sealed, and grown since: it stays
        path = directory / "live" / (name + paths.LOG_ENDING)
        if dead.get(names[0], _is_old(path)):
            found.append(name)
    return found


def _is_old(path: Path) -> bool:
    """A log whose writer's file was lost: is it long since it was written?"""
    return _age(path) > LEFT_OVER


class _Damaged(OSError):
    """A unit is not as it was written."""


def _merge_once(
    directory: Path,
    part_bytes: int,
    report: Report,
    tell: Callable[[str], None],
    broken: dict[str, str],
) -> bool:
    """Merge once. False: another process did so meanwhile, files moved, or more units proved to be
    `broken`; try again."""
    files = list_run(directory)
    parts = _plan(directory, files, part_bytes, report, broken)
    if parts is None:
        report.parts = len(files.covers.parts)
        return True
    number = (files.number or 0) + 1
    temporary = directory / "merged" / f".{number}-{os.urandom(4).hex()}"
    disk.make_dir(temporary)
    try:
        _write(temporary, files.covers, parts, tell)
        place = directory / "merged" / str(number)
        if not disk.commit(temporary, place):
            if list_run(directory).number == files.number:
                raise FileExistsError(errno.EEXIST, "no merged directory of Rollscope", str(place))
            return False
    except (FileNotFoundError, duckdb.Error, _Damaged):
        if list_run(directory).units.keys() != files.units.keys():
            return False  # a newer merged directory took the place of our sources
        found = _find_broken(temporary, parts)
        if not found:
            raise
        broken |= found
        return False
    finally:
        if temporary.is_dir():
            disk.remove(temporary)
    report.merged += sum(len(part.sources) for part in parts if len(part.sources) > 1)
    report.parts = len(parts)
    return True


def _find_broken(temporary: Path, parts: list[PlannedPart]) -> dict[str, str]:
    """Which of the units to be merged are damaged, and how."""
    found = {}
    db = connect(temporary)
    try:
        for unit in (unit for part in parts for unit in part.sources):
            if (why := _damage(db, unit)) is not None:
                found[str(unit.directory)] = why
    finally:
        db.close()
    return found


def _damage(db: duckdb.DuckDBPyConnection, unit: Unit) -> str | None:
    for path in map(unit.file, unit.tables):
        why = scans.damage(db, path, unit.info.files.get(path.name))
        if why is not None:
            return f"{path.name} is {why}" if why.startswith("damaged") else f"{path.name} {why}"
    return None


def _hurt(directory: Path, files: RunFiles) -> list[str]:
    """What is wrong with the newest merged directory. As long as anything is, nothing is built on
    it and nothing that it covers is removed: the rest may still come, or be there elsewhere."""
    newest = f"{directory / 'merged' / str(files.number)}/"
    return [f"{path}: {why}" for path, why in files.problems.items() if path.startswith(newest)]


def _plan(
    directory: Path, files: RunFiles, part_bytes: int, report: Report, broken: dict[str, str]
) -> list[PlannedPart] | None:
    """The parts of the next merged directory; None: nothing is worth merging."""
    hurt = _hurt(directory, files)
    for text in hurt:
        report.refuse(text)
    if hurt:
        return None
    old: list[Unit] = []
    segments: list[Unit] = []
    for unit in files.units.values():
        is_segment = unit.directory.parent.name == "segments"
        why = broken.get(str(unit.directory)) or _trouble(unit)
        if why is None and is_segment and not _log_is_gone(directory, unit):
            continue
        if why is not None:
            report.refuse(f"{unit.directory}: {why}")
            if not is_segment:
                return None  # an old part that we do not understand must not be carried on
            continue
        (segments if is_segment else old).append(unit)
    if files.covers.version > schema.VERSION or not segments:
        return None
    small = [unit for unit in old if _bytes(unit) < part_bytes // 2]
    kept = [PlannedPart(unit.directory.name, (unit,)) for unit in old if unit not in small]
    number = (files.number or 0) + 1
    made = [
        PlannedPart(f"{number}-{k}", tuple(batch))
        for k, batch in enumerate(_batches(small + sorted(segments, key=_when), part_bytes))
    ]
    if len(made) + len(kept) >= len(segments) + len(old) and not any(
        unit.info.late_facts for unit in segments
    ):
        return None  # nothing would become fewer
    return kept + made


def _trouble(unit: Unit) -> str | None:
    """Why a unit cannot be merged by this program; None: it can."""
    if unit.info.version > schema.VERSION:
        return f"written by a newer Rollscope (format {unit.info.version})"
    if len(unit.tables) < len(schema.TABLES) or not unit.info.logs:
        return "damaged"
    return None


def _log_is_gone(directory: Path, unit: Unit) -> bool:
    """Is the live log of a segment removed? Only then can it grow no more."""
    for log, sealed in unit.info.logs.items():
        path = directory / "live" / (log + paths.LOG_ENDING)
        remove_log(path, sealed)
        if path.exists():
            return False
    return True


def _when(unit: Unit) -> tuple[int, str]:
    """Logs with the same number, of different writers, were written about the same time."""
    writer, number = paths.split_log_name(unit.directory.name) or ("", 0)
    return number, writer


def _bytes(unit: Unit) -> int:
    return sum(unit.file(table).stat().st_size for table in unit.tables)


def _batches(sources: list[Unit], part_bytes: int) -> Iterator[list[Unit]]:
    batch: list[Unit] = []
    size = 0
    for unit in sources:
        batch.append(unit)
        size += _bytes(unit)
        if size >= part_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(
    target: Path, old: Covers, parts: list[PlannedPart], tell: Callable[[str], None]
) -> None:
    """Write a whole merged directory."""
    db = connect(target)
    try:
        merger = Merger(db, parts)
        for number, part in enumerate(parts, 1):
            tell(f"part {number} of {len(parts)}")
            if merger.is_unchanged(part) and part.name in old.parts:
                merger.link(part, target / part.name)
            else:
                for unit in part.sources:
                    if unit.info.files and (why := _damage(db, unit)) is not None:
                        raise _Damaged(why)
                merger.build(part, target / part.name)
    finally:
        db.close()
    logs = dict(old.logs)
    for part in parts:
        for unit in part.sources:
            logs |= unit.info.logs
    covers = Covers(version=schema.VERSION, logs=logs, parts=[part.name for part in parts])
    disk.write(target / COVERS, small.pack(covers))
    disk.sync(target)


def sweep(directory: Path, grace: float = GRACE) -> None:
    """Remove what the newest merged directory covers, and what crashed programs left behind."""
    files = list_run(directory)
    if files.number is not None and not _hurt(directory, files):
        for name, sealed in files.covers.logs.items():
            remove_log(directory / "live" / (name + paths.LOG_ENDING), sealed)
        newest = directory / "merged" / str(files.number)
        if _age(newest / COVERS) >= grace:
            older = (n for n in paths.numbered(newest.parent) if n < files.number)
            for path in (*files.spare.values(), *(newest.with_name(str(n)) for n in older)):
                disk.remove(path)
    for part in ("segments", "merged"):
        for path in (directory / part).glob(".*"):
            if path.name.startswith(".gone-") or _age(path) > LEFT_OVER:
                disk.remove(path)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
