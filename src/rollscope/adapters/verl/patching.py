"""Replacing verl's functions, and putting them back when the run is finished."""

from __future__ import annotations

from typing import Any

_originals: list[tuple[Any, str, Any]] = []


def replace(owner: Any, name: str, function: Any) -> None:
    """Put `function` in the place of one that `owner` (a class or module) has itself."""
    _originals.append((owner, name, vars(owner)[name]))
    setattr(owner, name, function)


def restore() -> None:
    """Put every original back, the last replaced first."""
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)
