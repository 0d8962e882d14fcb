"""The way from the trainer's threads to the log.

Callers append to a queue that is bounded by bytes; one background thread puts arrays into
text, compresses and writes. A caller never waits for the thread: it holds no lock while it
works, and gives the interpreter back every millisecond, so that a training loop in pure
Python hardly notices it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import Protocol

from ..store.write.log import FRAME_RAW, CannotWrite, Entry, LogWriter
from ..store.writers import BEAT, Counters, WriterInfo, steady
from .problems import odd, problems, report

GATHER = 0.04
"""Seconds from one frame to the next. Together with the work, a record is written within the
promised 50 ms, and 10 ms later while the main thread computes: it hands over the interpreter only
every 5 ms, and a frame needs that three times. Fewer frames disturb the main thread less."""

HOLD = 0.001
"""Seconds of work between two moments at which other threads may run."""

RETRY = 1.0
"""Seconds after which a log that could not be written is tried again."""

CLOSE_WAIT = 20.0
"""Seconds that the end of the program may wait for a slow disk."""

_AFTER_FINISH = "logged after finish"
_ADVICE = "Record fewer (Sample) or raise ROLLSCOPE_QUEUE."


class AfterBeat(Protocol):
    """Called with every heartbeat, and when the writer ends. Returns what went wrong."""

    def __call__(self, info: WriterInfo, /, *, is_last: bool = False) -> list[str]: ...


class Background:
    """A bounded queue and the thread that empties it into a `LogWriter`."""

    def __init__(self, log: LogWriter, limit: int, beat: float = BEAT) -> None:
        self.log = log
        self._limit = limit
        self._beat_every = beat
        self._queue: deque[Entry] = deque()
        self._held: list[Entry] = []
        """Taken out of the queue by the thread and not written yet."""
        self._put_lock = threading.RLock()  # among callers; the thread takes it to count a loss
        self._put_bytes = 0
        self._done_bytes = 0
        self._reserved = 0
        """Bytes of what an adapter holds and has not made into entries yet."""
        self._wake = threading.Lock()  # held while there is no reason to wake up
        self._wake.acquire()
        self._sleeping = False
        self._closing = False
        self._closed = ""
        """Why nothing more is taken."""
        self._blocked: CannotWrite | None = None
        self._dropped: dict[tuple[str, str], int] = {}
        self._told = problems.told()
        self._taken = 0.0
        """When the thread last began a frame."""
        self._next_beat = 0.0
        self._next_start = 0.0
        """When the thread may be started again, if that failed."""
        self.after_beat: dict[str, AfterBeat] = {}
        """What the thread calls with every heartbeat, by the name that its troubles are told by."""
        self._thread: threading.Thread | None = None

    # -- the callers' side -------------------------------------------------------------

    def put(self, entry: Entry) -> bool:
        """Hand an entry over. False: there was no room, so it was dropped and counted."""
        with self._put_lock:
            if self._closed:
                self._drop(entry.kind, self._closed)
                report("run", f"a record was {self._closed}, so it is lost")
                return False
            if self.queued + entry.size > self._limit and not _is_small_end(entry):
                self._no_room(entry)
                return False
            self._put_bytes += entry.size
            self._queue.append(entry)
            if self._thread is None:
                self.start()
        if self._sleeping:
            self.wake()
        return True

    def reserve(self, size: int, kind: str, count: int) -> bool:
        """Make room for what an adapter keeps until it is converted. False: there is none, so it
        is dropped and counted as `count` of its `kind`.

        There is always room for one. `put` does not ask what is reserved, or what is already
        converted could be lost for what is not.
        """
        with self._put_lock:
            if not self._reserved or self._reserved + self.queued + size <= self._limit:
                self._reserved += size
                return True
            self._full("converting", kind, count)
            return False

    def release(self, size: int) -> None:
        """What was reserved is going to be put now."""
        with self._put_lock:
            self._reserved -= size

    def _no_room(self, entry: Entry) -> None:
        if entry.size <= self._limit:
            self._full("writing", entry.kind)
            return
        self._drop(entry.kind, "larger than the queue")
        size, limit = f"{entry.size / 1e6:.0f} MB", f"{self._limit / 1e6:.0f} MB"
        text = f"a record of {size} is larger than the queue ({limit}) and was dropped."
        report("queue", f"{text} {_ADVICE}")

    def _full(self, what: str, kind: str, count: int = 1) -> None:
        if self._blocked:
            self._drop(kind, self._blocked.reason, count)
            return
        self._drop(kind, "queue full", count)
        why = f"the queue ({self._limit / 1e6:.0f} MB) is full, because {what} is too slow"
        report("queue", f"{why}: records are dropped. {_ADVICE}")

    def drop(self, kind: str, reason: str) -> None:
        """Count the loss of something that never reached the queue."""
        with self._put_lock:
            self._drop(kind, reason)

    def _drop(self, kind: str, reason: str, count: int = 1) -> None:
        key = (kind, reason)
        self._dropped[key] = self._dropped.get(key, 0) + count

    def start(self) -> None:
        """Start the thread. If that fails (no threads are left), a later call tries again."""
        with self._put_lock:
            if self._thread is not None or steady() < self._next_start:
                return
            thread = threading.Thread(target=self._run, name="rollscope", daemon=True)
            try:
                thread.start()
                self._thread = thread
            except Exception as error:
                self._next_start = steady() + RETRY
                report("background thread", f"it did not start ({error}); it is tried again")

    def wake(self) -> None:
        self._sleeping = False
        with suppress(RuntimeError):  # somebody woke it already
            self._wake.release()

    def close(self, wait: float = CLOSE_WAIT) -> None:
        """Write what is queued and end in order, within `wait` seconds."""
        if self._closing:
            return
        self._closing = True
        if self._thread is None and not self._queue:
            self._closed = _AFTER_FINISH
            return
        self._next_start = 0.0
        self.start()
        if self._thread is None:
            self._run()
            return
        self.wake()
        self._thread.join(wait)
        if self._thread.is_alive():
            report(
                "finish",
                f"the disk is too slow: the program ends after {wait:.0f} s, and what is not "
                "written by then is lost",
            )

    def flush(self, wait: float) -> bool:
        """Wait until all that was put is written or dropped; False if that takes too long."""
        deadline = steady() + wait
        while self._done_bytes < self._put_bytes and not self._closed:
            if steady() > deadline:
                return False
            self.start()
            self.wake()
            time.sleep(0.002)
        return True

    @property
    def queued(self) -> int:
        """Bytes on their way to the disk."""
        return self._put_bytes - self._done_bytes

    def counters(self) -> Counters:
        """What became of everything, up to now."""
        self._publish()
        return self.log.info.counters

    # -- the thread's side -------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._beat()
            while not self._closing or self._held or self._queue:
                is_last = self._closing
                try:
                    self._wait_for_work()
                    self._empty()
                except Exception as error:  # nobody foresaw it; the thread goes on
                    self._block(_unforeseen(error))
                if steady() >= self._next_beat:
                    self._beat()
                if self._blocked and is_last:
                    break
        except BaseException as error:  # the thread must not die without a word
            report("background thread", f"it ended with {error!r}; nothing more is recorded")
        self._end()

    def _wait_for_work(self) -> None:
        if self._closing:
            return
        if self._blocked:
            self._wake.acquire(timeout=RETRY)
            return
        self._pause(self._taken + GATHER)
        if not self._queue:
            self._sleeping = True  # only then a caller wakes it
            if not self._queue and not self._closing:
                self._pause(max(self._next_beat, steady() + 0.01))
            self._sleeping = False
            if self._queue and not self._closing:
                self._pause(steady() + GATHER)

    def _pause(self, until: float) -> None:
        """Do nothing until then, or until woken."""
        self._wake.acquire(timeout=max(until - steady(), 0.0))

    def _empty(self) -> None:
        """Write the queue, a frame at a time. Records that come while a frame is written wait for
        the next one, unless the frame was full. Otherwise each rollout would get a frame of its own
        if the main thread is busy and hands over the interpreter every 5 ms."""
        is_full = True
        while is_full and (self._held or self._queue):
            self._taken = steady()
            is_full = self._take() >= FRAME_RAW
            size = _bytes(self._held)
            try:
                self._write()
            except CannotWrite as why:
                self._block(why)
                return
            finally:
                self._done_bytes += size - _bytes(self._held)
            self._blocked = None

    def _write(self) -> None:
        """Write the held entries, or raise CannotWrite. An unforeseen error costs only the entries
        that cause it: those that cannot be written while others can."""
        try:
            self.log.write(self._held)
            return
        except CannotWrite:
            raise
        except Exception as error:
            why = _unforeseen(error)
        refused, count = [], len(self._held)
        for entry in list(self._held):
            alone = [entry]
            try:
                self.log.write(alone)
            except CannotWrite:
                raise
            except Exception as error:
                why = _unforeseen(error)
            if alone:
                refused.append(entry)
            else:
                self._held.remove(entry)
        if refused and len(refused) == count:
            raise why
        report("recording", why.text)
        for entry in refused:
            self._held.remove(entry)
            self.drop(_counted_as(entry), "could not be written")

    def _take(self) -> int:
        """Move entries out of the queue and into text until a frame is full. Returns its size."""
        held = self._held
        size = sum(len(entry.encode()) for entry in held)
        is_crowded = self._put_bytes - self._done_bytes > self._limit // 4
        hold, since = (8 * HOLD if is_crowded else HOLD), time.perf_counter()
        while self._queue and size < FRAME_RAW:
            if not (self._closing or self._queue[0].line.is_here()):
                break  # the GPU is not so far; the thread waits as if nothing had come
            entry = self._queue.popleft()
            try:
                size += len(entry.encode(odd))
                held.append(entry)
            except Exception as error:
                self._done_bytes += entry.size
                self.drop(_counted_as(entry), "could not be encoded")
                report("encoding", f"{type(error).__name__}: {error}")
            if time.perf_counter() - since > hold:
                time.sleep(0)  # let others have the interpreter
                since = time.perf_counter()
        return size

    def _block(self, why: CannotWrite) -> None:
        self._blocked = why
        report(
            "recording", f"{why.text}. New records are kept in memory while they fit, then dropped."
        )

    def _beat(self) -> None:
        self._next_beat = steady() + self._beat_every
        self.log.look_for_logs()
        self._publish()
        try:
            self.log.beat()
        except Exception as error:
            report("heartbeat", _unforeseen(error).text)
            return
        self._call_after_beat()

    def _call_after_beat(self, *, is_last: bool = False) -> None:
        for name, call in self.after_beat.items():
            try:
                for text in call(self.log.info, is_last=is_last):
                    report(name, text)
            except Exception as error:  # the thread must go on, strict or not
                report(name, f"{type(error).__name__}: {error}")

    def _publish(self) -> None:
        """Bring the counters of the writer's file up to date."""
        info = self.log.info
        for text in self.log.problems:
            report("log", text)
        self.log.problems.clear()
        rollouts: dict[str, int] = {}
        others: dict[str, int] = {}
        for (kind, reason), count in list(self._dropped.items()):
            where = rollouts if kind == "rollouts" else others
            where[reason] = where.get(reason, 0) + count
        info.counters.dropped, info.counters.dropped_other = rollouts, others
        info.problems = problems.list(self._told)

    def _end(self) -> None:
        with self._put_lock:
            self._closed = _AFTER_FINISH if self._closing else "logged after the writer failed"
        reason = self._blocked.reason if self._blocked else "not written at the end"
        for entry in (*self._held, *self._queue):
            self._drop(_counted_as(entry), reason)
        self._held = []
        self._queue.clear()
        self.log.look_for_logs()
        self._call_after_beat(is_last=True)
        self._publish()
        try:
            self.log.close()
        except Exception as error:
            report("finish", _unforeseen(error).text)


_SMALL = 64 << 10


def _is_small_end(entry: Entry) -> bool:
    """The end of an open rollout finds room in a full queue. Otherwise it would stay open for
    ever."""
    return entry.phase == "close" and entry.size < _SMALL


def _counted_as(entry: Entry) -> str:
    """What is lost with it: without its end, a rollout is still there."""
    return "pieces" if entry.phase == "close" else entry.kind


def _unforeseen(error: Exception) -> CannotWrite:
    if isinstance(error, CannotWrite):
        return error
    return CannotWrite("internal error", f"{type(error).__name__}: {error}")


def _bytes(entries: list[Entry]) -> int:
    return sum(entry.size for entry in entries)
