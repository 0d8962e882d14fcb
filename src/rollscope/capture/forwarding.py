"""All that capture knows of sinks: an interface.

Sinks read the store, so they stand above capture, and capture imports none of them. The package
`rollscope` stands above both: its `__init__.py` hands the sinks in. They are loaded when a run
asks for one, so a program that only records never pays for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ..store.writers import WriterInfo


class Follower(Protocol):
    """Sees to it that a run is forwarded while this process writes to it."""

    def beat(self, info: WriterInfo, *, is_last: bool = False) -> list[str]:
        """Called with every heartbeat, and when the writer ends. Returns what went wrong."""

    def finish(self, wait: float) -> str:
        """Called after the writer has ended. Waits at most `wait` seconds and says how it went."""


class Sinks(Protocol):
    """What the package `rollscope.sinks` offers to capture."""

    def check(self, sinks: str | Iterable[str], /) -> tuple[str, ...]:
        """The sinks that were asked for, each as one text. ValueError says what is wrong."""

    def follow(self, directory: Path, sinks: Iterable[str], /) -> Follower:
        """Have the run in this directory forwarded to these sinks."""


sinks: Callable[[], Sinks]
"""Returns the sinks. `rollscope/__init__.py` sets it."""
