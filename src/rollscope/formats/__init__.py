"""Import and export of files that others write and read.

Each format is one module. To be imported, it has:

    recognise(path) -> bool                         is this file or folder ours, by its content?
    read(path) -> Iterator[Rollout | Problem]       streaming; a bad line is a Problem, not the end
    files(folder) -> list[Path]                     if a folder is one thing: the files in it
    read_metrics(path) -> Iterator[(step, values)]  if the trainer's own numbers lie beside it

To be exported, it has one of:

    write(rollouts, file) -> LineCount              lines of text
    writer(reader, plan, cleaner) -> ShardWriter    a folder of files

Trainers' own files are read by the trainers' adapters, which have the same functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from ..model import Rollout
from ..model.grouping import Grouped
from ..model.problem import Problem
from ..model.redact import Redactor
from ._export import (
    CannotExport,
    Export,
    ExportPlan,
    ExportState,
    LineCount,
    Lines,
    Read,
    following,
)
from ._readers import NO_FORMAT, Reader, Readers, Skipped, Source, UnknownFormat
from .columns import check as check_mapping

if TYPE_CHECKING:
    from ..store.read.bodies import StoredRollout
    from ..store.read.reader import Reader as StoreReader


READERS = {
    "verl": Reader("rollscope.adapters.verl.files", "verl's rollout_data_dir"),
    "slime": Reader("rollscope.adapters.slime.files", "slime's debug rollouts"),
    "open-instruct": Reader("rollscope.adapters.open_instruct.files", "what --save_traces writes"),
    "areal": Reader("rollscope.adapters.areal.files", "AReaL's dump_to_file"),
    "trl": Reader("rollscope.adapters.trl.files", "TRL's completions_*.parquet"),
    "tinker": Reader("rollscope.adapters.tinker.files", "a log_path of tinker-cookbook"),
    "verifiers": Reader("rollscope.adapters.verifiers.files", "verifiers, runs of prime-rl"),
    "nemo-rl": Reader("rollscope.formats.nemo_rl", "NeMo-RL's train_data_step*.jsonl"),
    "roll": Reader("rollscope.formats.roll", "ROLL's rollout_dump_data.step_*.jsonl"),
    "atropos": Reader("rollscope.formats.atropos", "groups of Atropos, and its HTML"),
    "nemo-gym": Reader("rollscope.formats.nemo_gym", "rollouts of NeMo Gym"),
    "inspect": Reader("rollscope.formats.inspect", "Inspect logs, .eval and .json"),
    "atif": Reader("rollscope.formats.atif", "ATIF trajectories (Harbor)"),
    "swe-agent": Reader("rollscope.formats.swe_agent", "SWE-agent's .traj"),
    "openhands": Reader("rollscope.formats.openhands", "event streams of OpenHands"),
    "intercode": Reader("rollscope.formats.intercode", "results of InterCode"),
    "tau2": Reader("rollscope.formats.tau2", "results of tau2-bench"),
    "tau-bench": Reader("rollscope.formats.tau_bench", "results of tau-bench"),
    "pairs": Reader("rollscope.formats.pairs", "preference data: prompt, chosen, rejected"),
    "parquet": Reader("rollscope.formats.parquet", "a folder of `export parquet`"),
    "hf": Reader("rollscope.formats.hf", "a dataset of `export hf`"),
    "scout": Reader("rollscope.formats.scout", "transcripts of Inspect Scout"),
    "jsonl": Reader("rollscope.formats.jsonl", "chats as JSON, Rollscope's own"),
    "columns": Reader("rollscope.formats.columns", "Parquet, CSV, Arrow; any JSON with --map"),
}
"""By the name a person types. A file is read by the first that recognises it."""


_readers = Readers(READERS)
reader, detect, find, read = _readers.module, _readers.detect, _readers.find, _readers.read


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


def write(name: str, rollouts: Iterable[Rollout], file: IO[bytes]) -> LineCount:
    """Write rollouts as lines of a format."""
    module = importlib.import_module(EXPORTERS[name].module)
    if not hasattr(module, "write"):
        raise CannotExport(f"{name} writes a folder of files: say which one with --out FOLDER")
    written: LineCount = module.write(rollouts, file)
    return written


def export(
    reader: StoreReader,
    rows: Callable[[], Iterable[Grouped]],
    plan: ExportPlan,
    out: Path,
    clean: Redactor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    on_ray: bool = False,
) -> ExportState:
    """Write what the plan asks for to `out`, from where an earlier try stopped.

    `rows` finds the rollouts, in order, with the fields that tell their groups. `on_ray`: the nodes
    of a Ray cluster read and redact them.
    """
    from ..store.read.outgoing import outgoing

    exporter = EXPORTERS[plan.format]
    module = importlib.import_module(exporter.module)
    begun = Export(out, plan, rows)
    cleaner = begun.cleaner(clean)
    done = begun.state.rollouts
    take: Read = partial(outgoing, reader, cleaner=cleaner, has_tags=exporter.has_tags)
    if on_ray:
        from ..store.read.on_ray import whole

        take = following(whole(reader, begun.left(), cleaner, has_tags=exporter.has_tags))

    def read(ids: Iterable[str]) -> Iterator[StoredRollout]:
        nonlocal done
        for stored in take(ids):
            yield stored
            done += 1
            progress(done, begun.state.total)

    progress(done, begun.state.total)
    is_lines = hasattr(module, "write")
    writer = Lines(module.write) if is_lines else module.writer(reader, plan, cleaner)
    return begun.run(writer, read)


__all__ = [
    "EXPORTERS", "NO_FORMAT", "READERS", "CannotExport", "ExportPlan", "ExportState", "Exporter",
    "LineCount", "Problem", "Reader", "Skipped", "Source", "UnknownFormat", "check_mapping",
    "detect", "export", "find", "read", "reader", "write",
]  # fmt: skip
