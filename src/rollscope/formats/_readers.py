"""Formats that can be imported: which one a file has, and what of a folder is read by which."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ..model import Rollout
from ..model.problem import Problem
from ._mapping import parse

Metrics = dict[str, float]


class UnknownFormat(ValueError):
    """No such format, or a file that no format recognises."""


class Reader(NamedTuple):
    """A format that can be imported."""

    module: str
    help: str
    """What is read, in a few words."""


NO_FORMAT = "no known format"
_HIDDEN = (".", "__pycache__")


class Source(NamedTuple):
    """A file, or a folder that is one thing, and the format that reads it."""

    path: Path
    format: str
    root: Path
    """What was asked for: the file itself, or a folder above it."""
    module: ModuleType

    @property
    def name(self) -> str:
        """Where it lies below what was asked for."""
        return _below(self.path, self.root)

    def read(self, mapping: str = "") -> Iterator[Rollout | Problem]:
        """Every rollout, and what could not be read."""
        own = None
        if getattr(self.module, "NUMBERS_TASKS", False) and self.root.is_dir():
            own = self.name.partition(".")[0]
        try:
            for found in self.module.read(self.path, *filter(None, [mapping])):
                if own is not None and isinstance(found, Rollout) and found.dataset is None:
                    found.dataset = own  # each of its files numbers its tasks from 0
                yield found
        except Exception as error:  # of a damaged file, in a way that nobody has thought of
            yield Problem(self.path, None, f"the rest cannot be read: {error!r}")

    def metrics(self) -> Iterator[tuple[int | None, Metrics]]:
        """The trainer's own numbers beside its rollouts, as (step, values), if there are any."""
        if hasattr(self.module, "read_metrics"):
            with contextlib.suppress(OSError, ValueError):
                yield from self.module.read_metrics(self.path)


class Skipped(NamedTuple):
    """A file that is not read."""

    path: Path
    why: str
    root: Path

    @property
    def name(self) -> str:
        return _below(self.path, self.root)


class Readers:
    """All formats that can be imported. A file is read by the first that recognises it."""

    def __init__(self, table: Mapping[str, Reader]) -> None:
        self._table = table

    def module(self, name: str) -> ModuleType:
        """The module that reads this format."""
        if name not in self._table:
            near = difflib.get_close_matches(name, self._table, 1)
            meant = f"did you mean {near[0]}?" if near else f"formats: {', '.join(self._table)}"
            raise UnknownFormat(f"there is no format {name!r}; {meant}")
        return importlib.import_module(self._table[name].module)

    def recognises(self, name: str, path: Path) -> bool:
        """Is it a file or folder of this format? A reader that stumbles does not recognise it."""
        with contextlib.suppress(Exception):
            return bool(self.module(name).recognise(path))
        return False

    def format_of(self, path: Path, names: Iterable[str]) -> str | None:
        """Its format, if it is one of these; None: none recognises it."""
        return next((name for name in names if self.recognises(name, path)), None)

    def find(
        self, root: Path, name: str | None = None, *, is_mapped: bool = False
    ) -> Iterator[Source | Skipped]:
        """Everything at a path, each file by its own format; or, with a `name`, what has that one.

        With a mapping every table and every JSON file is read.
        """
        if is_mapped:
            module = self.module("columns")
            for path in [root] if root.is_file() else _files_below(root):
                is_wanted = path == root or module.may_hold(path)
                why = "no table and no JSON"
                yield (
                    Source(path, "columns", root, module) if is_wanted else Skipped(path, why, root)
                )
            return
        names = list(self._table) if name is None else [name]
        wholes = [n for n in names if hasattr(self.module(n), "files")]
        for path in [root] if root.is_file() else self._entries(root, wholes, set()):
            yield self._judged(path, root, name)

    def _judged(self, path: Path, root: Path, name: str | None) -> Source | Skipped:
        if not os.access(path, os.R_OK):
            return Skipped(path, "reading is not permitted to you", root)
        if path.is_file() and not path.stat().st_size:
            return Skipped(path, "it is empty", root)
        if name is None or not self.recognises(name, path):
            found = self.format_of(path, self._table)
            if name is None:
                name = found
            elif found is not None:
                return Skipped(path, f"it is {found}, not {name}", root)
            elif path != root:  # a single file that was named is tried all the same
                return Skipped(path, f"it is not {name}", root)
        if name is None:
            return Skipped(path, NO_FORMAT, root)
        return Source(path, name, root, self.module(name))

    def _entries(self, folder: Path, wholes: list[str], taken: set[Path]) -> Iterator[Path]:
        """The folders below that are one thing, and all files that belong to none of them."""
        whole = self.format_of(folder, wholes)
        if whole is not None:
            own = set(self.module(whole).files(folder))
            if own - taken:
                yield folder
            taken |= own
        for entry in _listed(folder):
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._entries(path, wholes, taken)
            elif entry.is_file() and path not in taken:
                yield path

    def detect(self, path: Path) -> str:
        """The one format of a file, or of everything in a folder."""
        found = {item.format for item in self.find(path) if isinstance(item, Source)}
        if len(found) == 1:
            return found.pop()
        what = f"several formats: {', '.join(sorted(found))}" if found else NO_FORMAT
        raise UnknownFormat(f"{path}: {what} ({', '.join(self._table)})")

    def read(
        self, path: Path, name: str | None = None, mapping: str = ""
    ) -> Iterator[Rollout | Problem]:
        """Every rollout of a file, or of all files of a folder, and what could not be read.

        A `mapping` says which column or path is which field; see `columns`.
        """
        if mapping and name not in (None, "columns"):
            raise UnknownFormat(f"only the format columns takes a mapping, not {name!r}")
        if mapping:
            parse(mapping)
        found = list(self.find(path, name, is_mapped=bool(mapping)))
        if path.is_file() and isinstance(found[0], Skipped):
            raise UnknownFormat(f"{path}: {found[0].why} ({', '.join(self._table)})")
        return (
            item for source in found if isinstance(source, Source) for item in source.read(mapping)
        )


def _files_below(folder: Path) -> Iterator[Path]:
    for entry in _listed(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(folder / entry.name)
        elif entry.is_file():
            yield folder / entry.name


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder and is not hidden, in the order of its names and numbers."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        shown = [entry for entry in found if not entry.name.startswith(_HIDDEN)]
        return sorted(shown, key=lambda entry: _natural(entry.name))
    return []


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorted by this, `10.jsonl` comes after `9.jsonl`."""
    return [(int(n), "") if n.isdecimal() else (-1, n) for n in re.split(r"(\d+)", name)]


def _below(path: Path, root: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()
