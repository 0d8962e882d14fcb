"""Appending to `live/`: the only code that does.

One writer has one current log and, while rollouts that began in older ones are still going
on, those too. A frame is written whole or not at all: after a short or failed write the
file is cut back to its last good frame, or given up for a new one. Nothing here raises to
the trainer: the background thread of `capture` is the only caller, and it keeps what could
not be written and tries again.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ...model.schema import VERSION
from ...model.wire import Line
from .. import frames, launches, listing, paths, writers
from ..carry.home import is_away
from ..sealing import Sealer

MAX_RAW = 64 << 20
"""A log this large (before compression) takes no new rollouts."""

UNSEALED = 8_000
"""Entries that all live logs of a run should hold together. A reader keeps them in memory and takes
20 to 40 µs for each as it opens, so a log takes its share and is then finished and sealed."""

LEAST = 500
"""Entries that a log takes even if there are very many others: starting its sealer costs as much
as sealing 2,000 small rollouts."""

FRAME_RAW = 1 << 20
"""A frame this large (before compression) is full. To read one body, a reader decodes one frame."""

_LOOK_AT_DISK = 1.0  # seconds between two looks at the free space

_OVERHEAD = 500  # bytes of Python objects around an entry

Phase = Literal["whole", "open", "more", "close"]
"""What an entry is of its rollout: all of it (or all this process will say), its beginning,
a piece with more to come, its end."""


class Entry:
    """One line on its way to the log."""

    __slots__ = ("data", "kind", "line", "phase", "rollout", "size")

    def __init__(self, line: Line, kind: str, rollout: str | None, phase: Phase) -> None:
        self.line = line
        self.kind = kind
        """`rollouts`, `pieces`, `facts`, `metrics`: what it counts as."""
        self.rollout = rollout
        """Id of the rollout that it belongs to; None: any log will do."""
        self.phase = phase
        self.size = line.size + _OVERHEAD
        """Bytes it holds in memory, about."""
        self.data: bytes | None = None
        """The text of the line, once `encode` has made it."""

    def encode(self, problems: list[str] | None = None) -> bytes:
        if self.data is None:
            self.data = self.line.encode(problems)
        return self.data


class CannotWrite(Exception):
    """The log cannot be written now. `text` says why, in words for a person."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """A few words that losses are counted under."""
        self.text = text


class _LogFile:
    """One file of `live/`."""

    def __init__(self, path: Path, header: bytes) -> None:
        self.path = path
        self.end = 0
        self.raw = 0
        self.recorded = 0
        self.entries = 0
        self.open: set[str] = set()
        """Rollouts that began here and are still going on."""
        flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY
        self._fd = os.open(path, flags, 0o666)
        try:
            self.append([header])
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def append(self, lines: list[bytes]) -> int:
        """Write one frame, wholly or not at all (then OSError). Returns its size."""
        frame = frames.pack(lines)
        try:
            left = memoryview(frame)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, self.end)  # its failure is raised: then the log is given up
            raise
        self.end += len(frame)
        self.raw += sum(map(len, lines)) + len(lines)
        return len(frame)

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(paths.LOG_ENDING)

    @property
    def removed(self) -> bool:
        """Was the file taken away? Writing to it would succeed and be lost."""
        return os.fstat(self._fd).st_nlink == 0

    def is_astray(self) -> bool:
        """Does its path lead to something else, or nowhere? Readers would not find what it gets."""
        try:
            return not os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return True

    def is_cut(self) -> bool:
        """Does the file end with its last good frame?"""
        try:
            return os.fstat(self._fd).st_size == self.end
        except OSError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Limits(NamedTuple):
    """Sizes, times and permissions of one writer; tests make them small."""

    max_raw: int = MAX_RAW
    min_free: int = 0
    """Bytes that must be free on the disk; 0: do not look."""
    silent: float = writers.SILENT
    seal: bool = True
    mode: int = paths.PRIVATE
    """Permissions of the directories that it makes."""


class LogWriter:
    """Writes entries into the logs of one writer and keeps its file in `writers/`."""

    def __init__(self, directory: Path, info: writers.WriterInfo, limits: Limits) -> None:
        self.directory = directory
        self.info = info
        self.limits = limits
        self.problems: list[str] = []
        """What happened that a person should know; taken by the background thread."""
        self._seq = 0
        self._current: _LogFile | None = None
        self._older: list[_LogFile] = []
        self._homes: dict[str, _LogFile] = {}
        self._sealer = Sealer(directory)
        self._beaten = writers.steady()
        self._free_seen = float("-inf")
        self._next_look = LEAST
        """Entries of the current log at which the other live logs are counted."""
        self.info.carried = is_away(directory)

    def write(self, entries: list[Entry]) -> None:
        """Write the entries, one frame per log, and take the written ones out of the list.

        Raises CannotWrite; what is left in the list is not written.
        """
        self._begin_anew_if_silent()
        self._look_at_disk()
        while entries:
            log = self._home(entries[0])
            batch = [e for e in entries if self._home(e) is log]
            if self._append(log, batch):
                done = set(map(id, batch))
                entries[:] = [e for e in entries if id(e) not in done]
        if self._current is not None and self._is_full(self._current):
            self._older.append(self._current)
            self._current = None
        self._finish_older()

    def _is_full(self, log: _LogFile) -> bool:
        """Is it large, or has it its share of what may lie unsealed?"""
        if log.raw >= self.limits.max_raw:
            return True
        if not self.limits.seal or log.entries < self._next_look:
            return False
        # Not its logs: those that wait for their sealer must not make the next ones smaller.
        if log.entries >= max(UNSEALED // paths.live_writers(self.directory), LEAST):
            self._next_look = LEAST
            return True
        self._next_look = log.entries + LEAST
        return False

    def _append(self, log: _LogFile, batch: list[Entry]) -> bool:
        """Write one frame. False: the log takes no more, and the next try goes to a new one."""
        lines = [entry.encode() for entry in batch]
        try:
            size = log.append(lines)
            if self._was_silent():
                time.sleep(1.0)  # stopped inside the write: let whoever sealed the log remove it
            removed = log.removed
        except OSError as error:
            is_too_large = error.errno == errno.EFBIG and log.recorded > 0
            is_torn = not log.is_cut()
            if is_torn:
                self.info.torn[log.name] = log.end
            if is_too_large or is_torn:
                self._give_up(log)
            if is_too_large:
                return False
            raise _cannot_write(error, log.path) from error
        if removed and not self._was_sealed(log):
            self._give_up(log, removed=True)
            return False
        counters = self.info.counters
        counters.bytes += size
        counters.raw_bytes += sum(map(len, lines)) + len(lines)
        log.entries += len(batch)
        self.info.last_write = time.time()
        for entry in batch:
            self._count(entry, log)
        if removed:
            self._give_up(log, removed=True)
        return True

    def _count(self, entry: Entry, log: _LogFile) -> None:
        counters, id = self.info.counters, entry.rollout
        if entry.kind == "rollouts" and entry.phase != "close":
            counters.recorded += 1
            log.recorded += 1
        elif entry.kind == "facts":
            counters.facts += 1
        elif entry.kind == "metrics":
            counters.metrics += 1
        if id is not None and entry.phase in ("open", "more"):
            log.open.add(id)
            self._homes[id] = log
        elif id is not None and entry.phase == "close":
            self._homes.pop(id, None)
            log.open.discard(id)

    def _home(self, entry: Entry) -> _LogFile:
        """The log that the entry belongs to: the one its rollout began in."""
        if entry.rollout is not None and entry.rollout in self._homes:
            return self._homes[entry.rollout]
        if self._current is None:
            self._current = self._begin()
        return self._current

    def _begin(self) -> _LogFile:
        path = paths.log_path(self.directory, self.info.writer, self._seq)
        info = self.info
        names = ("writer", "project", "run", "launch", "worker", "started")
        about = {name: getattr(info, name) for name in names}
        header = msgspec.json.encode({"log": {"version": VERSION, **about}})
        try:
            paths.ensure_run(self.directory, info.project, info.run, self.limits.mode)
            log = _LogFile(path, header)
        except OSError as error:
            raise _cannot_write(error, path) from error
        self._seq += 1
        return log

    def _give_up(self, log: _LogFile, removed: bool = False) -> None:
        """Write to this log no more. Rollouts that began in it go on in the next one."""
        for id in log.open:
            self._homes.pop(id, None)
        log.open.clear()
        if removed:
            self.problems.append(
                f"{log.path} was removed or moved while it was written; unless it had been sealed, "
                f"{log.recorded} rollouts went with it. Recording goes on in a new log."
            )
        if log is self._current:
            self._current = None
            self._older.append(log)
        if removed:
            self._older.remove(log)
            log.close()

    def _was_sealed(self, log: _LogFile) -> bool:
        """Was the log taken away with its last frame sealed? Then it must not come again."""
        try:
            sealed = listing.taken(self.directory, log.name)
        except OSError:
            return False  # there is no such run any more
        return sealed is not None and sealed >= log.end

    def _finish_older(self) -> None:
        finished = [log for log in self._older if not log.open]
        for log in finished:
            self._older.remove(log)
            log.close()
            self._sealer.add(log.name)
            self.info.ends[log.name] = log.end
            if self.info.carried:
                self.info.done.append(log.name)
        if finished:
            with suppress(OSError):  # the next beat tells
                writers.write_info(self.directory, self.info)
        self._seal()

    def _seal(self, all: bool = False) -> None:
        is_mine = self.limits.seal and not self.info.carried
        problem = self._sealer.start(all) if is_mine else None
        if problem is not None:
            self.problems.append(problem)

    def beat(self) -> None:
        """Show that the writer lives, and what it has counted. Raises CannotWrite."""
        self.info.carried = is_away(self.directory)
        if self.info.beat == 0 and not self.info.carried:  # what was here may be at home by now
            with suppress(OSError):  # then clocks must do
                self.info.found = launches.look(self.directory, self.info.launch)
        self._begin_anew_if_silent()
        self.info.beat += 1
        self._tell_ends()
        try:
            if not (self.directory / "writers").is_dir():
                info = self.info
                paths.ensure_run(self.directory, info.project, info.run, self.limits.mode)
            writers.write_info(self.directory, self.info)
        except OSError as error:
            raise _cannot_write(error, self.directory) from error
        self._beaten = writers.steady()
        self._seal()

    def look_for_logs(self) -> None:
        """Give up logs that were taken away, also those that nothing is being written to."""
        for log in filter(None, [*self._older, self._current]):
            if log.is_astray():
                self._give_up(log, removed=True)

    def _tell_ends(self) -> None:
        """Note how far each log is written, for its sealer. Sealed logs are forgotten."""
        live = self.directory / "live"
        for name in [n for n in self.info.ends if not (live / (n + paths.LOG_ENDING)).exists()]:
            del self.info.ends[name]
        self.info.done = [n for n in self.info.done if n in self.info.ends and self.info.carried]
        for log in filter(None, [*self._older, self._current]):
            self.info.ends[log.name] = log.end

    def close(self) -> None:
        """End in order: nothing more is written. Raises CannotWrite if that cannot be told."""
        if self._current is not None:
            self._older.append(self._current)
            self._current = None
        for log in self._older:
            log.open.clear()
        self.info.finished = time.time()
        try:
            self.beat()
        finally:
            self._finish_older()
            self._seal(all=True)

    def _was_silent(self) -> bool:
        return writers.steady() - self._beaten > self.limits.silent

    def _begin_anew_if_silent(self) -> None:
        if not self._was_silent():
            return
        for log in filter(None, [*self._older, self._current]):
            self._give_up(log)
        self._finish_older()
        self._beaten = writers.steady()

    def _look_at_disk(self) -> None:
        if self.limits.min_free <= 0 or writers.steady() - self._free_seen < _LOOK_AT_DISK:
            return
        directory = self.directory
        while not directory.exists() and directory != directory.parent:
            directory = directory.parent
        try:
            stat = os.statvfs(directory)
        except OSError:
            return  # whatever is wrong, the write will tell
        free = stat.f_bavail * stat.f_frsize
        if free < self.limits.min_free:
            raise CannotWrite(
                "disk nearly full",
                f"only {free / 1e9:.1f} GB are free at {directory}, less than "
                f"ROLLSCOPE_MIN_FREE ({self.limits.min_free / 1e9:.1f} GB): recording pauses "
                "until there is room, because a full disk kills checkpoints",
            )
        self._free_seen = writers.steady()


_WORDS = {
    errno.ENOSPC: ("disk full", "the disk is full"),
    errno.EDQUOT: ("disk full", "the disk quota is used up"),
    errno.EFBIG: ("disk full", "the file may not grow any more (ulimit -f)"),
    errno.EROFS: ("not writable", "the file system is read-only"),
    errno.EACCES: ("not writable", "writing is not permitted"),
    errno.EPERM: ("not writable", "writing is not permitted"),
    errno.EMFILE: ("too many open files", "this process has too many open files (ulimit -n)"),
    errno.ENFILE: ("too many open files", "the machine has too many open files"),
    errno.ENOENT: ("directory removed", "the directory was removed"),
    errno.ESTALE: ("directory removed", "the log was removed"),
}


def _cannot_write(error: OSError, path: Path) -> CannotWrite:
    reason, words = _WORDS.get(error.errno or 0, ("cannot write", str(error)))
    return CannotWrite(reason, f"cannot write {path}: {words}")
