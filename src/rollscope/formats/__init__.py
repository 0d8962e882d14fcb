"""Import and export of files that others write and read.

One module a format, all of the same shape:

    recognise(path) -> bool                         is this file (or folder) ours? By content.
    read(path) -> Iterator[Rollout | Problem]       streaming; a bad line is a Problem, not the end
    write(rollouts, out)                            where the format can be exported

Trainers' own files are read by the trainers' adapters, which have the same two functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ..model import Rollout
from ._problem import Problem, UnknownFormat

READERS = {
    "jsonl": "rollscope.formats.jsonl",
}
"""Formats that can be imported, by the name a person types; asked in this order."""


def reader(name: str) -> ModuleType:
    """The module that reads this format."""
    if name not in READERS:
        known = ", ".join(READERS)
        raise UnknownFormat(f"no format is called {name!r}; known are: {known}")
    return importlib.import_module(READERS[name])


def detect(path: Path) -> str:
    """The name of the format of this file or folder, recognised by its content."""
    for name in READERS:
        if reader(name).recognise(path):
            return name
    known = ", ".join(READERS)
    raise UnknownFormat(
        f"{path}: not recognised as any known format ({known}); "
        "name one: rollscope import FORMAT PATH"
    )


def read(path: Path, name: str | None = None) -> Iterator[Rollout | Problem]:
    """Every rollout of a file or folder, and what could not be read."""
    found: Iterator[Rollout | Problem] = reader(name or detect(path)).read(path)
    return found


__all__ = ["READERS", "Problem", "UnknownFormat", "detect", "read", "reader"]
