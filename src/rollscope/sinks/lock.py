"""Who forwards: the process that holds `<run>/sinks/<name>.lock`. See `store.lock`."""

from __future__ import annotations

from pathlib import Path

from ..store import lock
from ..store.lock import Unsupported, is_removed

__all__ = ["Unsupported", "is_held", "is_removed", "path", "take", "take_patiently"]


def path(directory: Path, name: str) -> Path:
    return directory / "sinks" / f"{name}.lock"


def take(directory: Path, name: str) -> int | None:
    """Take the lock. Returns a descriptor to keep open, or None if another process has it."""
    return lock.take(_made(directory, name))


def take_patiently(directory: Path, name: str) -> int | None:
    """The same, but wait a moment: a writer may just be testing the lock."""
    return lock.take_patiently(_made(directory, name))


def is_held(directory: Path, name: str) -> bool:
    """Does a process forward now? Raises Unsupported."""
    return lock.is_held(path(directory, name))


def _made(directory: Path, name: str) -> Path:
    file = path(directory, name)
    file.parent.mkdir(exist_ok=True)
    return file
