"""The training processes' side of forwarding: start the process that forwards, and report at the
end how it went. The writer's background thread calls this; it never does the work itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from ..store.carry.home import is_away
from ..store.starting import Starter
from ..store.writers import WriterInfo, is_gone, read_infos, steady
from . import lock
from . import state as states
from .spec import load, parse

_LONGEST = 300.0  # seconds until a process that ended at once is started again, at most


class Follower:
    """Sees to it that a run is forwarded while this process writes to it."""

    def __init__(self, directory: Path, sinks: Iterable[str]) -> None:
        self._directory = directory
        self._names = [spec.name for spec in parse(sinks)]
        self._starter = Starter()
        self._tries: dict[str, tuple[int, float]] = {}
        """How often a process was started, and when the next one may be."""
        self._failed: Exception | None = None
        """Why the last start failed."""

    def beat(self, info: WriterInfo, *, is_last: bool = False) -> list[str]:
        """With every heartbeat: see what the trainer opened, and whether somebody forwards. The
        last one starts nothing more. Returns what went wrong, in words."""
        wrong = []
        for name in self._names:
            try:
                hints = dict(load(name).hints())
                if hints:
                    info.hints[name] = hints
            except Exception as error:
                wrong.append(f"{name}: looking for what the trainer opened: {error!r}")
            try:
                if not is_last:
                    self._start(name)
            except lock.Unsupported as error:
                wrong.append(
                    f"{name}: nothing is forwarded, because the store's file system has no locks "
                    f"({error}); send it later: rollscope export {name} run:{info.run}"
                )
            except Exception as error:  # no right to write, ...
                wrong.append(f"{name}: the forwarding process did not start ({error})")
        if failed := self._starter.error(wait=is_last):  # no processes left, ...
            self._failed = failed
            wrong.append(f"a forwarding process did not start ({failed})")
        return wrong

    def _start(self, name: str, wait: bool = False) -> None:
        """Start the forwarding process unless there is one, now and then."""
        count, soonest = self._tries.get(name, (0, 0.0))
        if steady() < soonest or is_away(self._directory):  # forwarded from where Ray carries it
            return
        held = lock.take(self._directory, name)
        if held is None:
            return
        os.close(held)
        self._tries[name] = (count + 1, steady() + min(_LONGEST, 2.0**count))
        self._failed = None
        self._starter.start(["-m", "rollscope.sinks", str(self._directory), name], wait=wait)
        if wait and (error := self._starter.error()):
            raise error

    def finish(self, wait: float) -> str:
        """After this writer ended: wait until everything is sent, as long as it makes progress.
        Returns how it went."""
        if is_away(self._directory):
            return "from the driver's store, where Ray carries it"
        others = read_infos(self._directory).values()
        if any(info.finished is None and not is_gone(info) for info in others):
            return self._words("other processes still record: forwarding goes on")
        deadline = time.monotonic() + wait
        while left := [name for name in self._names if not self._is_complete(name, len(others))]:
            try:
                for name in left:
                    self._start(name, True)
            except Exception as error:  # no locks, no processes left: told with the heartbeat
                return self._not_sent(error, left)
            if time.monotonic() >= deadline or all(map(self._is_stuck, left)):
                if self._failed:
                    return self._not_sent(self._failed, left)
                return self._words("the forwarding process goes on")
            time.sleep(0.05)
        return self._words("")

    def _not_sent(self, error: Exception, left: list[str]) -> str:
        return self._words(f"not sent on ({error}); later: rollscope export {left[0]}")

    def _is_complete(self, name: str, writers: int) -> bool:
        state = states.read(self._directory, name)
        return state is not None and state.complete >= writers

    def _is_stuck(self, name: str) -> bool:
        """Is there nothing to wait for: does the other system fail, or was it given up?"""
        state = states.read(self._directory, name)
        return state is not None and state.complete == 0 and state.failures > 0

    def _words(self, rest: str) -> str:
        told = []
        for name in self._names:
            state = states.read(self._directory, name)
            if state is None:
                told.append(f"{name}: nothing sent yet")
                continue
            trouble = states.trouble(state)
            told.append(f"{name}: {states.words(state)}" + (f"; {trouble}" if trouble else ""))
        text = "; ".join(told)
        return f"{text}; {rest} (rollscope doctor tells)" if rest else text
