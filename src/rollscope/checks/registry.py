"""Every check that is known: ours, and those of other packages.

Another package adds checks by the entry point group `rollscope.checks`. What it names is a check,
or a list of them:

    [project.entry-points."rollscope.checks"]
    mine = "my_package.my_checks:CHECKS"
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterator
from typing import Any

from .check import Check

ROOMS = ("record", "behaviour", "run")
"""Packages of our checks, by kind: a file each."""

ENTRY_POINTS = "rollscope.checks"


@functools.cache
def ours() -> dict[str, Check]:
    """The checks of this package, by id."""
    found: dict[str, Check] = {}
    for room in ROOMS:
        package = importlib.import_module(f"{__package__}.{room}")
        for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
            if not module.startswith("_"):
                loaded = importlib.import_module(f"{package.__name__}.{module}")
                found |= {check.id: check for check in _checks(loaded)}
    return found


def _checks(module: Any) -> Iterator[Check]:
    return (value for value in vars(module).values() if isinstance(value, Check))


@functools.cache
def others() -> tuple[dict[str, Check], dict[str, str]]:
    """The checks of other packages by id, and what could not be loaded and why."""
    found: dict[str, Check] = {}
    problems: dict[str, str] = {}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
            checks = [loaded] if isinstance(loaded, Check) else list(loaded)
            wrong = [c for c in checks if not isinstance(c, Check)]
            if wrong:
                raise TypeError(f"{wrong[0]!r} is no check")
        except Exception as error:
            problems[f"{entry.name} = {entry.value}"] = f"{type(error).__name__}: {error}"
            continue
        for check in checks:
            if check.id in found or check.id in ours():
                problems[f"{entry.name} = {entry.value}"] = f"there is a check {check.id} already"
            else:
                found[check.id] = check
    return found, problems


def known() -> dict[str, Check]:
    """Every check by its id, ours first."""
    return ours() | others()[0]
