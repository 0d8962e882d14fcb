"""The places where an adapter takes hold of a trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def missing(trainer: Any, seams: Iterable[str]) -> list[str]:
    """Those that this trainer does not have: names, or paths such as `tracker.log`.

    >>> missing("text", ["upper", "upper.__call__", "lower.nothing"])
    ['lower.nothing']
    """
    return [seam for seam in seams if not _has(trainer, seam)]


def _has(found: Any, path: str) -> bool:
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return False
    return True
