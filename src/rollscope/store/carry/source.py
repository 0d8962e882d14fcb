"""One run on one node, as it is fetched.

What lies at home already is known from home's own files, so this can begin anew at any moment.
Bytes are written at their own offset: to write them twice changes nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

import msgspec

from .. import frames, listing, paths, writers
from ..sealing import Sealer
from . import state as states
from .home import Note, Task
from .node import Answer
from .state import Carried

BUDGET = 8 << 20
"""Bytes of logs in one answer."""

MOST = 1 << 30
"""Bytes in an answer, at most: what a single frame may need."""

WAIT = 1.0
"""Seconds that a node waits for something new before it answers that there is nothing."""

PAUSE = 0.05
"""Seconds until a frame that was not complete is looked at again."""

TRUSTED = 10.0
"""Seconds between two answers after which a heartbeat that has not moved proves nothing."""


class Link(Protocol):
    """The node at the other end. Any call may raise anything."""

    def more(
        self, have: dict[str, int], seen: dict[str, int], budget: int, wait: float
    ) -> Answer: ...

    def remove(self, name: str, size: int, other: tuple[int, int] | None) -> str: ...


class Shared(Exception):
    """The node's directory is this one."""


class Source:
    """Fetches one run from one node."""

    def __init__(self, task: Task, note: Note) -> None:
        self.note = note
        self.directory = paths.run_dir(Path(task.root), note.project, note.run)
        self.state = Carried(node=note.node, host=note.host, directory=note.directory)
        self._task = task
        self._sealer = Sealer(self.directory) if task.seal else None
        self._handed: set[str] = set()
        """Logs that were given to the sealer."""
        self._budget = BUDGET
        self._told = 0.0
        self.begin()

    def begin(self) -> None:
        """Forget what was learned from the node: the next answer comes from a new actor."""
        self._have: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._infos: dict[str, writers.WriterInfo] = {}
        self._watch = writers.Watch()
        self._answered: float | None = None

    @property
    def is_over(self) -> bool:
        """Has everybody there ended, and is all that they wrote here?"""
        ended = all(self._is_dead(info) for info in list(self._infos.values()))
        return self._answered is not None and ended and not self.state.left

    @property
    def sinks(self) -> set[str]:
        """Which sinks the writers there ask for."""
        asked = (text for info in list(self._infos.values()) for text in info.forwarded_to)
        return {text.partition(":")[0].strip() for text in asked}

    def step(self, link: Link) -> None:
        """Ask the node once, and bring what it says home. Raises what the link or the disk does."""
        self._check_room()
        infos, sizes, pieces = link.more(
            self._have, self._seen, self._budget, WAIT if self._answered is not None else 0.0
        )
        is_first, now = self._answered is None, writers.steady()
        if self._answered is None or now - self._answered > TRUSTED:
            self._watch = writers.Watch()  # it saw no heartbeat, because nobody told of any
        self._answered = now
        self._make_run()
        parsed = {name: info for name, (_, data) in infos.items() if (info := _info(name, data))}
        for name in infos.keys() - parsed.keys():
            self._infos.pop(name, None)  # it has seen that it is at home
        self._infos |= parsed
        sizes = {name: size for name, size in sizes.items() if self._info(name) is not None}
        self._take_pieces(pieces, sizes)
        for name, (changed, data) in infos.items():
            self._seen[name] = changed
            if name in parsed:
                self._take_info(name, data, parsed[name], sizes)
        for name in sizes.keys() - self._have.keys():
            self._have[name] = self._position(name, sizes[name])
        self._have = {name: size for name, size in self._have.items() if name in sizes}
        removed = self._remove(link, sizes)
        if self._sealer is not None:
            if removed or is_first:
                self._hand_to_sealer(sizes)
            self._sealer.start()
        self._tell(sizes)

    # -- logs --------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self.directory / "live" / name

    def _info(self, name: str) -> writers.WriterInfo | None:
        """Who writes a log; None: nobody who leaves it to be carried."""
        return self._infos.get(f"{_writer(name)}.json")

    def _position(self, name: str, size: int) -> int:
        """Up to where a log lies here: to the end of its last good frame, or all if it is sealed.
        If it has grown since, all of it is fetched again: readers take it from its beginning."""
        path = self._path(name)
        if not path.exists():
            sealed = listing.taken(self.directory, name.removesuffix(paths.LOG_ENDING))
            return size if sealed is not None and sealed >= size else 0
        return max((f.end for f in frames.scan(path) if f.data is not None), default=0)

    def _take_pieces(self, pieces: list[tuple[str, int, bytes]], sizes: dict[str, int]) -> None:
        taken, is_stuck = 0, False
        for name, offset, data in pieces:
            if self._have.get(name) != offset:
                continue
            length = self._take(name, offset, data, sizes)
            taken += length
            is_stuck |= length == 0 and offset + len(data) < sizes[name]
        self.state.bytes += taken
        self._budget = min(self._budget * 2, MOST) if is_stuck else BUDGET
        if pieces and not taken:
            time.sleep(PAUSE)

    def _take(self, name: str, offset: int, data: bytes, sizes: dict[str, int]) -> int:
        """Write a piece at its place, as far as its frames are whole. Of a log that has ended, what
        is no frame belongs to it, too."""
        is_rest = offset + len(data) == sizes[name] and self._has_ended(name, sizes[name])
        length = len(data) if is_rest else frames.whole(data)
        if length:
            fd = os.open(self._path(name), os.O_CREAT | os.O_WRONLY, 0o666)
            try:
                left, at = memoryview(data)[:length], offset
                while left:
                    count = os.pwrite(fd, left, at)
                    left, at = left[count:], at + count
            finally:
                os.close(fd)
            self._have[name] = offset + length
        return length

    def _has_ended(self, name: str, size: int) -> bool:
        """Will its writer write no more to this log, and is all there that he says he wrote?"""
        log = name.removesuffix(paths.LOG_ENDING)
        info = self._info(name)
        if info is None or size < info.ends.get(log, 0):
            return False
        return log in info.done or self._is_dead(info)

    def _is_dead(self, info: writers.WriterInfo) -> bool:
        return self._watch.is_dead(info)

    def _remove(self, link: Link, sizes: dict[str, int]) -> bool:
        """Remove from the node what lies here wholly, and take it out of `sizes`. Was there any?"""
        whole = [
            name
            for name, size in sizes.items()
            if self._have[name] == size and self._has_ended(name, size)
        ]
        removed = False
        for name in whole:
            answer = link.remove(name, sizes[name], self._keep(self._path(name)))
            if answer == "same":
                raise Shared
            if answer == "removed":
                del self._have[name], sizes[name]
                removed = True
        return removed

    def _hand_to_sealer(self, sizes: dict[str, int]) -> None:
        """Have every log of this node sealed that is no longer there."""
        mine = {info.writer for info in self._infos.values()}
        for entry in paths.entries(self.directory / "live"):
            log = entry.name.removesuffix(paths.LOG_ENDING)
            is_here = entry.name not in sizes and log not in self._handed
            if is_here and _writer(entry.name) in mine and self._sealer is not None:
                self._handed.add(log)
                self._sealer.add(log)

    def _keep(self, path: Path) -> tuple[int, int] | None:
        """Make sure that a file lies on the disk. Returns who it is; None: it is sealed already."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            os.fsync(fd)
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return found.st_ino, found.st_mtime_ns

    # -- the rest ----------------------------------------------------------------------

    def _take_info(
        self, name: str, data: bytes, info: writers.WriterInfo, sizes: dict[str, int]
    ) -> None:
        """Write a writer's file, unless it speaks of what was removed here long ago."""
        path = self.directory / "writers" / name
        is_old = info.finished is not None and not path.exists()
        if is_old and all(_writer(log) != info.writer for log in sizes):
            del self._infos[name]
        else:
            paths.replace_file(path, data)

    def _make_run(self) -> None:
        note = self.note
        paths.ensure_run(self.directory, note.project, note.run, self._task.mode)

    def _check_room(self) -> None:
        folder = Path(self._task.root)
        stat = os.statvfs(folder)
        free = stat.f_bavail * stat.f_frsize
        if free < self._task.min_free:
            raise OSError(f"only {free / 1e9:.1f} GB are free at {folder} (ROLLSCOPE_MIN_FREE)")

    def _tell(self, sizes: dict[str, int]) -> None:
        left = {name: (self._have.get(name, 0), size) for name, size in sizes.items()}
        state = self.state
        is_news = left.keys() != state.left.keys() or state.problem is not None
        state.left, state.heard, state.problem = left, time.time(), None
        state.writers = sorted(info.writer for info in self._infos.values())
        if is_news or writers.steady() - self._told > writers.BEAT:
            self.write_state()

    def write_state(self) -> None:
        self._told = writers.steady()
        self._make_run()
        states.write(self.directory, self.state)

    def end(self) -> None:
        """Have everything sealed that waits for it, and say how it went."""
        if self._sealer is not None:
            self._sealer.start(all=True)
        self.write_state()


def _writer(name: str) -> str | None:
    """Whose log a file of `live/` is; None: it is none."""
    log = name.removesuffix(paths.LOG_ENDING)
    names = paths.split_log_name(log) if log != name and "/" not in name else None
    return names[0] if names is not None else None


def _info(name: str, data: bytes) -> writers.WriterInfo | None:
    """The file of a writer that leaves its logs to be carried. Others stay on the node: a run may
    have had its home there. What is damaged there would be damaged here."""
    try:
        info = msgspec.json.decode(data, type=writers.WriterInfo)
    except (msgspec.MsgspecError, ValueError):
        return None
    is_mine = info.carried and name == f"{info.writer}.json" and "/" not in name
    return info if is_mine else None
