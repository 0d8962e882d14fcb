"""Large questions take turns, so that small ones never wait for them.

A question is large if it reads texts or compares them. So many large ones are at work at once, and
fewer of one client; the others wait without a thread. A search that streams takes a turn for each
step, so that every search gets on. Small questions take no turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..query import compile_query

AT_ONCE = 3
"""Large questions at work at once. The engine uses every core for each."""
EACH = 2
"""Of one client: its own others wait for these."""
WAITING = 40
"""Large questions of one client, those that wait included. More are refused."""
SECONDS = 60.0
"""That a large question may be at work. Waiting is not counted."""

TOO_LONG = f"this reads too much: it was ended after {SECONDS:.0f} s. Narrow it: step:, run:, task:"


T = TypeVar("T")


async def aside(work: Callable[..., T], *args: Any, abandon: bool = False) -> T:
    """What `work` gives, on a thread that no small question waits for."""
    alone = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=abandon, limiter=alone)


class TooMany(Exception):
    """A client asks for more large questions at once than are kept waiting."""


def is_large(name: str, asked: Any) -> bool:
    """Does this question read the texts of many rollouts?"""
    if name in ("compare", "search"):
        return True
    q = getattr(asked, "q", "")
    if not q or name == "hits":  # those read one rollout
        return False
    query = compile_query(q)
    return bool(query.terms or query.patterns)


class _Client:
    """The large questions of one client."""

    def __init__(self) -> None:
        self.asked = 0
        self.turns = anyio.CapacityLimiter(EACH)


class Turns:
    """Who is at work and who waits; used by one event loop."""

    def __init__(self) -> None:
        self._all = anyio.CapacityLimiter(AT_ONCE)
        self._clients: dict[str, _Client] = {}

    @contextlib.contextmanager
    def asking(self, who: str) -> Iterator[_Client]:
        """While a client asks one large question."""
        client = self._clients.setdefault(who, _Client())
        if client.asked >= WAITING:
            raise TooMany(f"{WAITING} searches of yours are under way already; wait for them")
        client.asked += 1
        try:
            yield client
        finally:
            client.asked -= 1
            if not client.asked:
                del self._clients[who]

    @contextlib.asynccontextmanager
    async def turn(self, client: _Client) -> AsyncIterator[None]:
        """While it is at work."""
        async with client.turns, self._all:
            yield
