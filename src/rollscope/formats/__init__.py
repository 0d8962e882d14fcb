"""Import and export of files that others write and read.

One module a format, all of the same shape:

    recognise(path) -> bool                         is this file (or folder) ours? By content.
    read(path) -> Iterator[Rollout | Problem]       streaming; a bad line is a Problem, not the end
    read_metrics(path) -> Iterator[(step, values)]  where the trainer's own numbers lie beside
    write(rollouts, out)                            where the format can be exported

Trainers' own files are read by the trainers' adapters, which have the same two functions.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ..model import Rollout
from ..model.problem import Problem
from . import columns
from ._redact import Cleaner
from ._tables import Tables, to_parquet
from ._work import CannotExport, Lines, Plan, Source, State, Target, Work, Written

Metrics = dict[str, float]


class UnknownFormat(ValueError):
    """No such format, or a file that no format recognises."""


READERS = {
    "verl": "rollscope.adapters.verl.files",
    "slime": "rollscope.adapters.slime.files",
    "open-instruct": "rollscope.adapters.open_instruct.files",
    "areal": "rollscope.adapters.areal.files",
    "trl": "rollscope.adapters.trl.files",
    "tinker": "rollscope.adapters.tinker.files",
    "verifiers": "rollscope.adapters.verifiers.files",
    "nemo-gym": "rollscope.formats.nemo_gym",
    "inspect": "rollscope.formats.inspect",
    "atif": "rollscope.formats.atif",
    "swe-agent": "rollscope.formats.swe_agent",
    "tau-bench": "rollscope.formats.tau_bench",
    "jsonl": "rollscope.formats.jsonl",
    "columns": "rollscope.formats.columns",
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
        with contextlib.suppress(Exception):  # a reader that stumbles does not recognise it
            if reader(name).recognise(path):
                return name
    known = ", ".join(READERS)
    raise UnknownFormat(
        f"{path}: not recognised as any known format ({known}); "
        "name one: rollscope import FORMAT PATH"
    )


def read(path: Path, name: str | None = None, mapping: str = "") -> Iterator[Rollout | Problem]:
    """Every rollout of a file or folder, and what could not be read.

    A `mapping` says which column or path is which field; see `columns`.
    """
    if mapping:
        if name not in (None, "columns"):
            raise UnknownFormat(f"a mapping goes with the format columns, not {name!r}")
        columns.parse(mapping)
        return columns.read(path, mapping)
    found: Iterator[Rollout | Problem] = reader(name or detect(path)).read(path)
    return found


def read_metrics(path: Path, name: str | None = None) -> Iterator[tuple[int | None, Metrics]]:
    """The trainer's own numbers beside its rollouts, as (step, values); often there are none."""
    module = reader(name or detect(path))
    if hasattr(module, "read_metrics"):
        yield from module.read_metrics(path)


__all__ = [
    "READERS", "CannotExport", "Cleaner", "Lines", "Plan", "Problem", "Source", "State", "Tables",
    "Target", "UnknownFormat", "Work", "Written", "detect", "read", "read_metrics", "reader",
    "to_parquet",
]  # fmt: skip
