"""Who writes: one small file a process, `writers/<writer>.json`.

It says who the writer is, what it recorded and lost, and, by a counter that moves while it
lives, whether it still does. A writer is dead if its process is gone from this machine, or
if its counter did not move for a minute on the observer's own clock; clocks of different
machines are never compared. A writer that was silent for half of that begins a new log
before it writes again, so nobody ever seals a log under a living writer's hands.
"""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import msgspec

from ..model.algorithm import Algorithm
from ..model.identity import base32
from ..model.known import known
from ..model.normalise import plain, text
from ..model.schema import VERSION
from . import small
from .paths import entries, replace_file, writer_path

PROCESS = "process-"
"""Prefix of the name of a launch that is a single process, because nobody named it."""

IMPORT = "import"
"""The launch of everything that was imported from files. It restarts nothing, and nothing
restarts it."""

BEAT = 5.0
"""Seconds between two heartbeats."""
SILENT = 30.0
"""A writer that did not beat for so long begins a new log."""
DEAD = 60.0
"""An observer that saw no beat for so long takes the writer for dead."""


class WriterProblem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that went wrong, in words for a person."""

    text: str
    count: int = 1
    first: float | None = None
    last: float | None = None


class Adapter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What hands rollouts over, and through which seams of the trainer."""

    name: str
    version: str | None = None
    """The trainer's."""
    seams: list[str] = msgspec.field(default_factory=list)


class Counters(msgspec.Struct, kw_only=True):
    """What became of everything that was handed over."""

    recorded: int = 0
    """Rollouts that lie in a log."""
    facts: int = 0
    """Calls of `annotate` that lie in a log."""
    metrics: int = 0
    """Calls of `metrics` that lie in a log."""
    bytes: int = 0
    """Written to disk."""
    raw_bytes: int = 0
    """The same before compression."""
    sampled_out: int = 0
    """Rollouts left out because `Sample` said so."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Rollouts lost, by reason."""
    dropped_other: dict[str, int] = msgspec.field(default_factory=dict)
    """Late facts, metrics and pieces of open rollouts lost, by reason."""


@known
class WriterInfo(msgspec.Struct, kw_only=True):
    """`writers/<writer>.json`."""

    version: int = VERSION
    writer: str
    project: str
    run: str
    launch: str
    worker: str | None = None
    host: str
    pid: int
    place: str
    """Machine, boot and process namespace: only there does `pid` mean anything."""
    process_start: str | None = None
    """The kernel's start mark of the process: tells a pid that was given again."""
    started: float
    """When recording began, Unix seconds."""
    last_write: float | None = None
    """When a record was last written. A launch ends with its last writer's last write."""
    found: dict[str, int] | None = None
    """The other launches that it found in the run as it began, and how many bytes their logs had by
    then; see `launches`. None: nobody looked."""
    beat: int = 0
    """Goes up while the process lives."""
    ends: dict[str, int] = msgspec.field(default_factory=dict)
    """Its logs in `live/`, and how many bytes of each it had written when it told so: of a log
    that it finished, all of them."""
    torn: dict[str, int] = msgspec.field(default_factory=dict)
    """Logs that it gave up after a failed write, and where their torn end begins. Nothing is lost
    with that: what it held went to the next log, or is counted as dropped."""
    carried: bool = False
    """It leaves its logs to be carried to another store, and sealed there; see `carry`."""
    done: list[str] = msgspec.field(default_factory=list)
    """If so: its logs in `live/` that it has finished."""
    finished: float | None = None
    """When the writer ended and told so; None: it has not, or not yet."""
    crashed: bool = False
    """It ended by an exception of the program."""
    rollscope: str | None = None
    python: str = msgspec.field(default_factory=platform.python_version)
    adapters: list[Adapter] = msgspec.field(default_factory=list)
    config: Any = None
    algorithm: Algorithm | None = None
    """What the trainer's settings say. None: this process does not know them."""
    sample: Any = None
    counters: Counters = msgspec.field(default_factory=Counters)
    problems: list[WriterProblem] = msgspec.field(default_factory=list)
    forwarded_to: list[str] = msgspec.field(default_factory=list)
    """Where its rollouts are to be forwarded, as it was asked for."""
    hints: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """What the trainer itself opened there, by sink."""


def new_writer() -> str:
    """A name that no other process has: host, pid and a random part."""
    host = re.sub(r"[^A-Za-z0-9.-]+", "-", platform.node() or "host").strip(".-")[:40] or "host"
    return f"{host}-{os.getpid()}-{base32(int.from_bytes(os.urandom(5), 'big'), 8)}"


def place() -> str:
    """Where a pid of this process means the same process."""
    parts = [text(platform.node())]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # no Linux: host and pid must do
    return " ".join(parts)


def process_start(pid: int) -> str | None:
    """The kernel's start mark of a process; None if it is gone or cannot be asked."""
    stat = _stat(pid)
    return stat[19] if stat else None


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing if it cannot be asked."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def write_info(directory: Path, info: WriterInfo) -> None:
    """Write the writer's file. On a full disk the old one is overwritten where it lies.

    It is padded for that: a few more counters must find room in the blocks it has.
    """
    path = writer_path(directory, info.writer)
    try:
        data = small.pack(info)
    except Exception:  # a path or a trainer's word that is not UTF-8 must not cost the heartbeat
        data = small.pack(plain(info, "", []))
    data = data.ljust(-(-(len(data) + 512) // 4096) * 4096)
    try:
        replace_file(path, data)
    except OSError:
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()


def read_info(path: Path, problems: dict[str, str] | None = None) -> WriterInfo | None:
    """A writer's file; None if it is missing or, as `problems` then tells, cannot be read."""
    try:
        return small.load(path, WriterInfo)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        if problems is not None:
            problems[str(path)] = f"cannot be read ({error}): what its process counted is not known"
    return None


def written(directory: Path, writer: str, log: str) -> int:
    """How many bytes of a log its writer says it has written; 0 if nobody can tell."""
    info = read_info(writer_path(directory, writer))
    return info.ends.get(log, 0) if info is not None else 0


def read_infos(directory: Path, problems: dict[str, str] | None = None) -> dict[str, WriterInfo]:
    """Every writer of a run, by name."""
    listed = (Path(entry.path) for entry in entries(directory / "writers", problems))
    infos = (read_info(path, problems) for path in listed if path.suffix == ".json")
    return {info.writer: info for info in infos if info is not None}


def is_gone(info: WriterInfo) -> bool:
    """Is its process certainly gone? Only ever true for processes of this machine."""
    return info.place == place() and has_ended(info.pid, info.process_start)


def has_ended(pid: int, start: str | None) -> bool:
    """Has this process of this machine ended? Its start mark tells a pid that was given again."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's process: it is there
    stat = _stat(pid)
    is_zombie = bool(stat) and stat[0] in "ZX"  # ended; its parent has not asked how
    return is_zombie or bool(stat and start is not None and stat[19] != start)


class Watch:
    """Tells dead writers from living ones. Keep one and ask it now and then."""

    def __init__(self, dead_after: float = DEAD) -> None:
        self._dead_after = dead_after
        self._seen: dict[str, tuple[int, float]] = {}

    def is_dead(self, info: WriterInfo) -> bool:
        """Has it finished, is its process gone, or did its heartbeat stop while we watched?"""
        if info.finished is not None or is_gone(info):
            return True
        now = steady()
        beat, since = self._seen.get(info.writer, (None, now))
        if beat != info.beat:
            self._seen[info.writer] = (info.beat, now)
            return False
        return now - since >= self._dead_after


def steady() -> float:
    """Seconds that also pass while the machine sleeps and never jump with the wall clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
