"""Work of an adapter that is put off: done soon, in order, on a thread of its own.

What waits is counted within `ROLLSCOPE_QUEUE`, together with what waits for the disk. The thread
shares the interpreter with the trainer, so it rests after each piece of work.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from numbers import Real
from types import SimpleNamespace
from typing import Any

from .. import capture

REST = 30
"""The thread rests so many times as long as it worked: it takes 3 % of the interpreter."""

PATIENCE = 0.25
"""Seconds after which no work waits for a rest. It would be lost if the process were killed."""


class Later:
    """Does work for one run in order, soon, and at the latest before the run finishes.

    Errors in the work are counted and told.
    """

    def __init__(self, adapter: str, run: capture.Run) -> None:
        self.adapter = adapter
        self.run = run
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"rollscope-{self.adapter}")
        self._last: Future[None] | None = None
        self._hurry = threading.Event()
        self.run.before_finish.append(self.drain)

    @classmethod
    def of(cls, adapter: str, run: capture.Run) -> Later:
        """The one that this adapter has for this run: all its work is done in one order."""
        known = (getattr(drain, "__self__", None) for drain in run.before_finish)
        found = (k for k in known if isinstance(k, cls) and k.adapter == adapter)
        return next(found, None) or cls(adapter, run)

    def __call__(
        self,
        work: Callable[..., Any],
        *args: Any,
        rollouts: int = 0,
        holds: Any = None,
        instead: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Do it later. If too much is waiting already it is dropped, and counted.

        `rollouts`: how many are lost then. Without it, a fact is. `instead` is done at once then,
        which saves the rollout but not its messages. `holds` is what keeps memory until the work
        is done, where `weight` does not see it in the arguments.
        """
        if self._process != os.getpid():
            self._begin()  # the child of a fork has no thread yet
        size = weight((args, kwargs) if holds is None else holds)
        lost = "facts" if not rollouts else "rollouts" if instead is None else "pieces"
        if self.run.reserve(size, lost, rollouts or 1):
            asked = time.monotonic()
            self._last = self._pool.submit(self._do, size, asked, work, args, kwargs)
        elif instead is not None:
            instead()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until everything asked for so far is done, at most `timeout` seconds."""
        if self._last is not None and self._process == os.getpid():
            self._hurry.set()
            wait([self._last], timeout)
            self._hurry.clear()

    def _do(
        self, size: int, asked: float, work: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        self.run.release(size)
        begun = time.thread_time()
        with capture.guard(f"adapter {self.adapter}"):
            work(*args, **kwargs)
        rest = REST * (time.thread_time() - begun)
        rest = min(rest, asked + PATIENCE - time.monotonic())
        if rest > 0:
            self._hurry.wait(rest)


def weight(value: Any) -> int:
    """Bytes that a value keeps in memory, about: lists of numbers, arrays and texts, in whatever
    lists, dicts and namespaces. Other objects are not looked into."""
    if value is None or isinstance(value, (int, float)):
        return 50
    if isinstance(value, (str, bytes)):
        return 50 + len(value)
    if isinstance(value, (list, tuple)):
        if len(value) > _FEW and isinstance(value[0], (int, float, type(None), Real)):
            return 50 + 8 * len(value)
        return 50 + sum(map(weight, value))
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, (dict, Mapping)):
        return 50 + sum(map(weight, value.values()))
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else 50


_FEW = 8
"""So many entries are looked at one by one: they may be arguments, not a row of numbers."""
