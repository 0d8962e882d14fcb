"""Cancelling the queries of a client that no longer waits for the answer.

    client = Cancellable()
    client.run(lambda: store.facets("..."))   # in a worker thread
    client.cancel()                           # from any other: `run` raises `Cancelled`

The client travels with the context, so nothing between it and the engine has to know of it.
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


class Cancelled(Exception):
    """Nobody waits for this answer any more."""


class Cancellable:
    """The queries of one client, who may leave before the answer is there."""

    def __init__(self) -> None:
        self._connections: list[DuckDBPyConnection] = []
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self, work: Callable[[], T]) -> T:
        """What `work` gives; raises `Cancelled` if the client left meanwhile."""
        token = _CURRENT.set(self)
        try:
            return work()
        except duckdb.InterruptException:
            if self._is_cancelled:
                raise Cancelled from None
            raise
        finally:
            _CURRENT.reset(token)
            with self._lock:
                self._connections.clear()

    def cancel(self) -> None:
        """End the running queries. One that is about to begin may miss it: call again until
        `run` ends."""
        with self._lock:
            self._is_cancelled = True
            for connection in self._connections:
                with contextlib.suppress(duckdb.Error):  # closed meanwhile
                    connection.interrupt()

    def take(self, connection: DuckDBPyConnection) -> None:
        """A connection is about to be used for this client."""
        with self._lock:
            if self._is_cancelled:
                raise Cancelled
            self._connections.append(connection)


_CURRENT: ContextVar[Cancellable | None] = ContextVar("cancellable", default=None)


def current() -> Cancellable | None:
    """The client that this thread works for; None: nobody who could leave."""
    return _CURRENT.get()
