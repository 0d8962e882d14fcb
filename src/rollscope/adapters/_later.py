"""Work that must not hold up the trainer: done in order, by one thread of its own.

Decoding tokens takes milliseconds a rollout; inside an event loop that also drives the
inference engine they would be idle time of the GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .. import capture


class Later:
    """Calls that are made one after the other, soon, and at the latest before `run` finishes.

    What they raise is counted and reported.
    """

    def __init__(self, name: str, run: capture.Run) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"rollscope-{name}")
        self._last: Future[None] | None = None
        run.before_finish.append(self.drain)

    def __call__(self, work: Callable[..., Any], *args: Any) -> None:
        self._last = self._pool.submit(self._do, work, args)

    def drain(self) -> None:
        """Wait until everything asked for so far is done."""
        if self._last is not None:
            self._last.result()

    def _do(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        with capture.guard(f"adapter {self._name}"):
            work(*args)
