"""The forwarding process: one for each run and sink, whichever writer started it.

It reads the run like any reader, so rollouts are whole, with the facts of all workers, and caps are
exact. Each sink has its own process, so that one that hangs or crashes holds up no other: the
watchdog ends it, and a writer starts it again.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..store import paths
from ..store.read.reader import Reader
from ..store.writers import Watch, WriterInfo, place, process_start, read_infos
from .base import Target
from .look import Due, Looker
from .send import Fetch, Sender, SinkFailed, fetcher
from .spec import Spec, parse

LOOK_EVERY = 1.0
"""Seconds between two looks at the run, at least."""
LOOK_SHARE = 20
"""The time between two looks is at least this many times the processor time of a look."""
GIVE_UP = 600.0
"""Seconds without a success, after all writers have ended, until the process gives up."""
MEMORY = 512 << 20
"""Memory of the reader. What does not fit goes to its temporary directory."""


class Requested(NamedTuple):
    """What the writers of a run ask of a sink."""

    spec: Spec
    hints: Mapping[str, str]
    notes: list[str]


def requested(infos: Iterable[WriterInfo], name: str) -> Requested | None:
    """What the newest launch asks of this sink. If its writers differ, the first one counts."""
    mine = sorted((info for info in infos if _text(info, name)), key=lambda info: info.started)
    if not mine:
        return None
    last = [info for info in mine if info.launch == mine[-1].launch]
    notes = []
    texts = list(dict.fromkeys(_text(info, name) for info in last))
    if len(texts) > 1:
        notes.append(f"processes ask for it differently; {texts[0]} holds, not {texts[1:]}")
    told = [info.hints[name] for info in last if info.hints.get(name)]
    found = sorted(told, key=len, reverse=True)  # who knows most: workers know less than drivers
    other = next((hints for hints in found if not hints.items() <= found[0].items()), None)
    if other is not None:
        notes.append(f"the trainer opened several: {found[0]} is joined, not {other}")
    return Requested(parse(texts[0])[0], found[0] if found else {}, notes)


def _text(info: WriterInfo, name: str) -> str:
    return next((text for text in info.forwarded_to if text.partition(":")[0].strip() == name), "")


class Forwarding:
    """Forwards one run to one sink until everything has ended and is sent."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        names = paths.read_run(directory)
        if names is None:
            raise FileNotFoundError(f"{directory} is not a run")
        self._names = names.project, names.run
        self._watch = Watch()
        self._infos: dict[str, WriterInfo] = {}
        self._requested: Requested | None = None
        self._sender: Sender | None = None
        self._looker: Looker | None = None
        self._failing_since: float | None = None
        self._pause = 0.0
        self._sent_for = 0.0

    def run(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Forward until there is nothing left to do, or the run was taken away."""
        try:
            self._run(goes_on)
        except Exception as error:
            if self._sender is not None and self.directory.is_dir():
                self._sender.failed(
                    f"the forwarding process ended: {type(error).__name__}: {error}"
                )
            raise

    def is_outrun(self) -> bool:
        """After releasing the lock: did a writer begin while this process was ending? That writer
        found the lock held and started no process, and it may have ended since."""
        complete = self._sender.state.complete if self._sender is not None else 0
        return 0 < complete < len(read_infos(self.directory))

    def _run(self, goes_on: Callable[[], bool]) -> None:
        root = self.directory.parent.parent
        with Reader(root, only=self.directory, threads=1, memory=MEMORY) as reader:
            while goes_on():
                began, self._sent_for = time.process_time(), 0.0
                self._infos = read_infos(self.directory)  # before what they wrote is looked at
                reader.refresh()
                if not self._prepare(reader) or self._round(reader, self._is_over()):
                    return
                cost = time.process_time() - began - self._sent_for
                self._sleep(max(LOOK_EVERY, LOOK_SHARE * cost))

    # -- one round ---------------------------------------------------------------------------

    def _prepare(self, reader: Reader) -> bool:
        """Follow what the writers ask for. False: nobody asks for this sink."""
        now = requested(self._infos.values(), self.name)
        if now is None:
            return False
        before, self._requested = self._requested, now
        if before is None or (before.spec, before.hints) != (now.spec, now.hints):
            self._begin(reader, now)
        self.sender.state.notes = now.notes
        return True

    def _begin(self, reader: Reader, now: Requested) -> None:
        if self._sender is not None:
            self._sender.close()
        target = Target(*self._names, hints=now.hints)
        watch = partial(_watch, now.spec.timeout)
        self._sender = sender = Sender(self.directory, now.spec, target, watch=watch)
        self._looker = Looker(reader, *self._names, now.spec.sample)
        state = sender.state
        died_in = state.calling if state.ended is None else None
        state.pid, state.place = os.getpid(), place()
        state.process_start, state.started = process_start(os.getpid()), time.time()
        state.ended, state.complete, state.calling = None, 0, None
        if died_in is not None:
            sender.failed(
                f"{died_in}: the forwarding process ended inside this call, or was ended because "
                f"it took longer than {now.spec.timeout:.0f} s"
            )
            sender.refuse(list(sender.journal.doubtful) if sender.journal else [])
        if state.next_try is not None and state.failures:
            self._pause = max(0.0, min(state.next_try - time.time(), 300.0))
        sender.save()

    def _is_over(self) -> bool:
        return all(self._watch.is_dead(info) for info in self._infos.values())

    def _round(self, reader: Reader, is_over: bool) -> bool:
        """Look, and send what is ready. True: there is nothing left to do, now or later."""
        sender = self.sender
        due = self._look(is_over)
        may_send = self._pause <= 0 and (is_over or self._has_hints())
        is_due = due.new or due.changed or (is_over and self._has_metrics())
        if may_send and is_due and not sender.is_connected:
            if self._try(sender.connect):  # now it is known what the other system has and can do
                self._looker = Looker(reader, *self._names, sender.spec.sample)
                due = self._look(is_over)
            else:
                may_send = False
        if may_send and sender.is_connected:
            self._try(lambda: self._send(due, fetcher(reader)))
        if is_over and not sender.state.counts.waiting and not (self._pause or due.changed):
            sender.state.complete = len(self._infos)
            self._end()
            return True
        if is_over and self._is_hopeless():
            self._end()
            return True
        sender.save()
        return False

    def _look(self, is_over: bool) -> Due:
        sender = self.sender
        due = self.looker.look(sender.journal, is_over, sender.can_update)
        sender.state.counts.waiting, sender.state.counts.left_out = due.waiting, due.left_out
        return due

    def _send(self, due: Due, fetch: Fetch) -> None:
        sender = self.sender
        for done in sender.send(due.new, fetch):
            sender.state.counts.waiting = due.waiting - done
            sender.save()
        for _ in sender.update(due.changed, fetch):
            pass
        sender.send_metrics(self.looker)

    def _has_metrics(self) -> bool:
        """Were metrics logged that did not go along with the rollouts?"""
        state = self.sender.state
        return state.to is not None and state.metrics != self.looker.metrics_mark()

    def _try(self, work: Callable[[], None]) -> bool:
        began = time.process_time()
        try:
            work()
            self._failing_since = None
        except SinkFailed as failure:
            self._pause = self.sender.failed(failure)
            self._failing_since = self._failing_since or time.monotonic()
        self._sent_for += time.process_time() - began
        return not self._pause

    def _has_hints(self) -> bool:
        """Has every writer had time to say what the trainer opened itself?"""
        return all(info.beat >= 2 or self._watch.is_dead(info) for info in self._infos.values())

    def _is_hopeless(self) -> bool:
        since = self._failing_since
        return since is not None and time.monotonic() - since > GIVE_UP

    def _end(self) -> None:
        sender = self.sender
        sender.close()
        sender.state.ended, sender.state.next_try = time.time(), None
        sender.save()

    def _sleep(self, seconds: float) -> None:
        """Wait for the next look. A failing system is left alone for longer."""
        time.sleep(min(seconds, 60.0))
        self._pause = max(0.0, self._pause - seconds)

    @property
    def sender(self) -> Sender:
        assert self._sender is not None
        return self._sender

    @property
    def looker(self) -> Looker:
        assert self._looker is not None
        return self._looker


def _watch(seconds: float, is_calling: bool) -> None:
    """End the process if a call does not return, even one that never releases the interpreter."""
    if is_calling:
        faulthandler.dump_traceback_later(seconds, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()
