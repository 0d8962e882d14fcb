"""Import and export of files that others write and read.

Each format is one module. To be imported, it has:

    recognise(path) -> bool                         is this file or folder ours, by its content?
    read(path) -> Iterator[Rollout | Problem]       streaming; a bad line is a Problem, not the end
    read_metrics(path) -> Iterator[(step, values)]  if the trainer's own numbers lie beside it

To be exported, it has one of:

    write(rollouts, file) -> LineCount              lines of text
    writer(reader, plan, cleaner) -> ShardWriter    a folder of files

Trainers' own files are read by the trainers' adapters, which have the same functions.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, NamedTuple

from ..model import Rollout
from ..model.grouping import Grouped
from ..model.problem import Problem
from ..model.redact import Redactor
from . import columns
from ._export import CannotExport, Export, ExportPlan, ExportState, LineCount, Lines

if TYPE_CHECKING:
    from ..store.read.bodies import StoredRollout
    from ..store.read.reader import Reader

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


class Exporter(NamedTuple):
    """A format that can be exported."""

    module: str
    help: str
    unit: str = "rollouts"
    """What one line or row is."""
    by_group: bool = False
    """It compares siblings, so they must come one after the other."""
    has_tags: bool = True
    """Labels and flags go into `meta`, because it has no table of facts."""


EXPORTERS = {
    "jsonl": Exporter("rollscope.formats.jsonl", "one line per rollout, with everything in it"),
    "sft": Exporter(
        "rollscope.formats.sft", "one line per conversation, for fine-tuning", "conversations"
    ),
    "pairs": Exporter(
        "rollscope.formats.pairs",
        "the best and the worst of each group, for preference training",
        "pairs",
        by_group=True,
    ),
    "atif": Exporter("rollscope.formats.atif", "ATIF trajectories, one per line"),
    "parquet": Exporter(
        "rollscope.formats.parquet", "the five tables of the open format", has_tags=False
    ),
    "hf": Exporter("rollscope.formats.hf", "a Hugging Face dataset directory"),
    "scout": Exporter("rollscope.formats.scout", "transcripts for Inspect Scout"),
}
"""Formats that can be exported, by the name a person types."""


def reader(name: str) -> ModuleType:
    """The module that reads this format."""
    if name not in READERS:
        known = ", ".join(READERS)
        raise UnknownFormat(f"there is no format {name!r}. Known formats: {known}")
    return importlib.import_module(READERS[name])


def detect(path: Path) -> str:
    """The name of the format of this file or folder, recognised by its content."""
    for name in READERS:
        with contextlib.suppress(Exception):  # a reader that stumbles does not recognise it
            if reader(name).recognise(path):
                return name
    known = ", ".join(READERS)
    raise UnknownFormat(
        f"{path}: no known format recognises it ({known}). "
        "Name the format: rollscope import FORMAT PATH"
    )


def read(path: Path, name: str | None = None, mapping: str = "") -> Iterator[Rollout | Problem]:
    """Every rollout of a file or folder, and what could not be read.

    A `mapping` says which column or path is which field; see `columns`.
    """
    if mapping:
        if name not in (None, "columns"):
            raise UnknownFormat(f"only the format columns takes a mapping, not {name!r}")
        columns.parse(mapping)
        return columns.read(path, mapping)
    found: Iterator[Rollout | Problem] = reader(name or detect(path)).read(path)
    return found


def read_metrics(path: Path, name: str | None = None) -> Iterator[tuple[int | None, Metrics]]:
    """The trainer's own numbers beside its rollouts, as (step, values); often there are none."""
    module = reader(name or detect(path))
    if hasattr(module, "read_metrics"):
        yield from module.read_metrics(path)


def write(name: str, rollouts: Iterable[Rollout], file: IO[bytes]) -> LineCount:
    """Write rollouts as lines of a format."""
    module = importlib.import_module(EXPORTERS[name].module)
    if not hasattr(module, "write"):
        raise CannotExport(f"{name} writes a folder of files: say which one with --out FOLDER")
    written: LineCount = module.write(rollouts, file)
    return written


def export(
    reader: Reader,
    rows: Callable[[], Iterable[Grouped]],
    plan: ExportPlan,
    out: Path,
    clean: Redactor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportState:
    """Write what the plan asks for to `out`, from where an earlier try stopped.

    `rows` finds the rollouts, in order, with the fields that tell their groups.
    """
    from ..store.read.outgoing import outgoing

    exporter = EXPORTERS[plan.format]
    module = importlib.import_module(exporter.module)
    begun = Export(out, plan, rows)
    cleaner = begun.cleaner(clean)
    done = begun.state.rollouts

    def read(ids: Iterable[str]) -> Iterator[StoredRollout]:
        nonlocal done
        for stored in outgoing(reader, ids, cleaner, has_tags=exporter.has_tags):
            yield stored
            done += 1
            progress(done, begun.state.total)

    progress(done, begun.state.total)
    is_lines = hasattr(module, "write")
    writer = Lines(module.write) if is_lines else module.writer(reader, plan, cleaner)
    return begun.run(writer, read)


__all__ = [
    "EXPORTERS", "READERS", "CannotExport", "ExportPlan", "ExportState", "Exporter", "LineCount",
    "Problem", "UnknownFormat", "detect", "export", "read", "read_metrics", "reader", "write",
]  # fmt: skip
