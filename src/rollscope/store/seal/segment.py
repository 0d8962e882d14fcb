"""Sealing: a finished log becomes a segment.

All files are written and synced under a temporary name; one rename of the directory is the
commit. A sealer that comes second finds it there and discards its own. The log is removed only
after the commit, and only if it has not grown.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
from duckdb import DuckDBPyConnection

from ...model import schema
from .. import disk, engine, frames, listing, paths, scans, units, writers
from ..carry.home import away_path, is_away
from ..fold import fold
from ..header import Header, complete_header, read_header
from ..lines import Spool, load_log
from ..pieces import found_again
from ..tables import stage, thin
from ..units import BadRange, Times, UnitInfo

MEMORY = "2GB"
"""A sealer's share; what does not fit goes to its temporary directory."""


_TRIES = 5


class CannotSeal(Exception):
    """The log cannot be sealed by this program, or not now; it stays as it is."""


def seal(directory: Path, log: str) -> bool:
    """Seal a log of the run in `directory`. False: another process had done it already.

    The caller knows that the log is finished or its writer dead. Raises `CannotSeal` if the log
    was written by a newer program or cannot be read to its end, FileNotFoundError if there
    is no such log and no segment of it.
    """
    path = directory / "live" / (log + paths.LOG_ENDING)
    if is_away(directory) and _is_carried(directory, log):
        raise CannotSeal(
            f"{path} is carried to the driver's store by Ray, and sealed there. To seal it here "
            f"after all, remove {away_path(directory)}"
        )
    sealed = listing.taken(directory, log)
    if sealed is None:
        temporary = directory / "segments" / f".{log}-{os.urandom(4).hex()}"
        disk.make_dir(temporary)
        try:
            sealed = write_segment(directory, log, temporary)
            if disk.commit(temporary, directory / "segments" / log):
                remove_log(path, sealed)
                return True
        except FileNotFoundError:
            if listing.taken(directory, log) is None:
                raise
        finally:
            if temporary.is_dir():
                disk.remove(temporary)
        sealed = listing.taken(directory, log)
    remove_log(path, sealed)
    return False


def _is_carried(directory: Path, log: str) -> bool:
    """Does its writer leave it to be carried? If nobody can tell, yes."""
    names = paths.split_log_name(log)
    info = writers.read_info(paths.writer_path(directory, names[0])) if names else None
    return info is None or info.carried


def remove_log(path: Path, sealed: int | None) -> None:
    """Remove a sealed log, unless it has grown: then readers show the rest from it."""
    try:
        # Opening makes a network file system tell its true size.
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return
    if sealed is not None and max(size, _written(path)) <= sealed:
        disk.unlink(path)


def _written(path: Path) -> int:
    """How many bytes of a log its writer says it has written."""
    log = path.name.removesuffix(paths.LOG_ENDING)
    names = paths.split_log_name(log)
    return writers.written(path.parent.parent, names[0], log) if names else 0


def write_segment(directory: Path, log: str, target: Path) -> int:
    """Write the segment of a log into `target`. Returns how many bytes of the log it took."""
    path = directory / "live" / (log + paths.LOG_ENDING)
    written = _written(path)
    db = connect(target)
    try:
        read, bad_lines = _load(db, path, log, target)
        if read.end < written:
            raise CannotSeal(
                f"{path} ends after {read.end} of the {written} bytes that its writer wrote: it "
                "was cut, or the file system does not show the rest yet. It stays as it is"
            )
        header = complete_header(directory, log, read.header)
        if header.version > schema.VERSION:
            raise CannotSeal(
                f"{path} was written by a newer Rollscope (format {header.version}, "
                f"this one knows {schema.VERSION})"
            )
        if path.stat().st_size < read.end:
            raise CannotSeal(f"{path} became shorter while it was read")
        stage(db, {0: header})
        db.execute("DROP TABLE staged_lines")  # half of the memory
        info = build(db, target, header)
        info.continued = sorted({*info.continued, *_logged_again(db, directory, log)})
    finally:
        db.close()
    info.logs = {log: read.end}
    info.damaged = read.damaged
    info.bad_lines = bad_lines
    units.write_info(target, info)
    return read.end


class _Walked(NamedTuple):
    """What is in a log."""

    header: Header | None
    end: int
    damaged: list[BadRange]
    lines: int
    longest: int
    """Bytes of its longest frame, unpacked."""


def _load(db: DuckDBPyConnection, path: Path, log: str, target: Path) -> tuple[_Walked, int]:
    """Read the good lines of a log, and keep bad ranges aside. Returns how many lines are no JSON.

    Raises CannotSeal if the engine did not read every line that is.
    """
    walked = _walk(path, log)
    if not walked.damaged:
        with contextlib.suppress(duckdb.Error):
            if load_log(db, path, walked.longest) == walked.lines:
                return walked, 0
    spool = Spool(target / "lines.ndjson")
    try:
        walked = _walk(path, log, spool)
        if walked.damaged:
            _keep_aside(path, walked.damaged, target)
        bad_lines = spool.load(db)[0]
        if bad_lines:
            _check_bad_lines(db, path, spool)
        return walked, bad_lines
    finally:
        spool.remove()


def _walk(path: Path, log: str, spool: Spool | None = None) -> _Walked:
    """Look at every frame of a log, and put its good lines into the spool."""
    header: Header | None = None
    damaged: list[BadRange] = []
    number = end = longest = 0
    for frame in frames.scan(path):
        end = frame.end
        if frame.data is None:
            damaged.append(BadRange(log, frame.offset, frame.end, frame.error or ""))
            continue
        if number == 0:
            header = _header(frame)
        longest = max(longest, len(frame.data))
        if spool is not None:
            number = spool.add(0, number, frame.lines())
        else:
            number += frame.data.count(b"\n")
    return _Walked(header, end, damaged, number, longest)


def _check_bad_lines(db: DuckDBPyConnection, path: Path, spool: Spool) -> None:
    """Lines that are JSON and were not read would be lost with the log."""
    read = db.execute("SELECT line FROM staged_lines WHERE line IS NOT NULL").fetchall()
    numbers = {number for (number,) in read}
    lines = (line for frame in frames.scan(path) for line in frame.lines())
    lost = sum(n not in numbers and _is_object(line) for n, line in enumerate(lines))
    rows = count(db, "staged_lines")
    if lost or rows != spool.spooled:
        count_lost = max(lost, spool.spooled - rows)
        raise CannotSeal(f"{path}: {count_lost} of its lines cannot be read. It stays as it is")


def _is_object(line: bytes) -> bool:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and bool(found)


def _header(frame: frames.Frame) -> Header | None:
    lines = frame.lines()
    return read_header(lines[0]) if lines else None


def _keep_aside(path: Path, damaged: list[BadRange], target: Path) -> None:
    aside = target / units.KEPT_ASIDE
    disk.make_dir(aside)
    with path.open("rb") as file:
        for bad in damaged:
            file.seek(bad.offset)
            disk.write(aside / f"{bad.log}-{bad.offset}", file.read(bad.end - bad.offset))


def connect(temporary: Path) -> DuckDBPyConnection:
    """An engine for sealing and compaction: one thread, so that training keeps the others."""
    return engine.connect(
        {
            "threads": 1,
            "memory_limit": MEMORY,
            "temp_directory": str(temporary / "spill"),
            # Without this the engine ignores the size of row groups; sorting holds anyway.
            "preserve_insertion_order": False,
        }
    )


def build(db: DuckDBPyConnection, target: Path, header: Header) -> UnitInfo:
    """Write the five files from the staged tables, facts folded into their rollouts."""
    rollouts = thin("staged_heads", "staged_messages")
    db.execute(f"CREATE OR REPLACE TEMP TABLE plain AS {rollouts}")
    if count(db, "staged_facts"):
        db.execute(f"CREATE OR REPLACE TEMP TABLE built AS {fold('plain', 'staged_facts')}")
        db.execute("UPDATE staged_facts SET folded = true WHERE rollout IN (SELECT id FROM built)")
    else:
        db.execute("ALTER TABLE plain RENAME TO built")
    sources = {table: f"staged_{table}" for table in schema.TABLES} | {"rollouts": "built"}
    rows = units.write_tables(db, target, sources)
    info = UnitInfo(version=schema.VERSION, columns=units.fingerprint(), logs={}, rows=rows)
    info.files = units.file_sums(target, rows)
    describe(db, info, sources)
    continued = db.execute("SELECT id FROM staged_heads WHERE NOT begun ORDER BY id").fetchall()
    info.continued = [id for (id,) in continued]
    if header.launch is not None:
        times = info.launches.get(header.launch, Times())
        info.launches[header.launch] = times | Times(header.started, header.started)
    return info


def _logged_again(db: DuckDBPyConnection, directory: Path, log: str) -> set[str]:
    """Rollouts of `built` that another process has logged, too, and that are sealed there.

    Of two logs that are sealed at the same time, one at least finds the other: each has written
    its rows before it looks.
    """
    for _ in range(_TRIES):
        files = [
            str(path / "rollouts.parquet")
            for path in (directory / "segments").glob(".*")
            if not path.name.startswith(f".{log}-")
            and units.parquet_trouble(path / "rollouts.parquet") is None
        ]
        others = listing.list_run(directory).units.values()
        relations = [scans.read([file]) for file in files]
        relation = scans.Scans(db).relation("rollouts", others)
        relations += [relation] if relation is not None else []
        try:
            return {id for rows in relations for id in found_again(db, "built", rows)}
        except (FileNotFoundError, duckdb.IOException):
            continue  # sealed or merged meanwhile
    return set()


def describe(db: DuckDBPyConnection, info: UnitInfo, sources: dict[str, str]) -> None:
    """Fill in what readers want to know about a unit before they open its files."""
    rollouts = sources["rollouts"]
    info.late_facts = count(db, sources["facts"], "NOT folded")
    info.late_spans = count(db, sources["spans"], f"rollout NOT IN (SELECT id FROM {rollouts})")
    times = db.execute(
        f"""
        SELECT launch, min(time), max(time) FROM (
            SELECT launch, time FROM {rollouts}
            UNION ALL SELECT launch, time FROM {sources["metrics"]}
            UNION ALL SELECT r.launch, f.time FROM {sources["facts"]} f
                JOIN {rollouts} r ON r.id = f.rollout AND r.writer = f.writer
        ) WHERE launch IS NOT NULL AND isfinite(time) GROUP BY launch
        """
    ).fetchall()
    info.launches = {launch: Times(begin, last) for launch, begin, last in times}


def count(db: DuckDBPyConnection, table: str, where: str = "true") -> int:
    row = db.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()
    return int(row[0]) if row else 0
