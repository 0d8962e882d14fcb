"""Interrupting the queries of a client that no longer waits for the answer.

    asker = Asker()
    asker.run(lambda: store.facets("..."))    # in a worker thread
    asker.stop()                              # from any other: `run` ends with `Stopped`

The asker travels with the context, so nothing between it and the engine has to know of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

import duckdb
from duckdb import DuckDBPyConnection

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for this answer any more."""


class Asker:
    """Somebody who asks, and may go away before the answer is there."""

    def __init__(self) -> None:
        self._connections: list[DuckDBPyConnection] = []
        self._gone = False
        self._lock = threading.Lock()

    def run(self, work: Callable[[], T]) -> T:
        """What `work` gives; `Stopped` if the asker went away meanwhile."""
        token = _ASKER.set(self)
        try:
            return work()
        except duckdb.InterruptException:
            if self._gone:
                raise Stopped from None
            raise
        finally:
            _ASKER.reset(token)
            with self._lock:
                self._connections.clear()

    def stop(self) -> None:
        """End what is being asked. A query about to begin may miss it: call again until it ends."""
        with self._lock:
            self._gone = True
            for connection in self._connections:
                with contextlib.suppress(duckdb.Error):  # closed meanwhile
                    connection.interrupt()

    def take(self, connection: DuckDBPyConnection) -> None:
        """A connection is about to be used for the asker."""
        with self._lock:
            if self._gone:
                raise Stopped
            self._connections.append(connection)


_ASKER: ContextVar[Asker | None] = ContextVar("asker", default=None)


def asker() -> Asker | None:
    """The client that this thread works for; None if nobody can leave."""
    return _ASKER.get()
