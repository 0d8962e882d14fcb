"""The runs of a store: how much each holds, and which of them are being written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from rollscope.model.algorithm import Algorithm
from rollscope.store.writers import is_gone, read_infos

from .engine import Engine
from .sql import Sql

if TYPE_CHECKING:
    from rollscope.store.runs import RunInfo
    from rollscope.store.writers import WriterInfo

LABELS = "labels"
"""The launch of the processes that only write labels. It makes no rollouts, so it supersedes
none, and a run that only they write to is not live."""


class RunSummary(msgspec.Struct, frozen=True):
    """One run in a list of runs. Superseded rollouts are not counted."""

    project: str
    run: str
    directory: str
    rollouts: int
    superseded: int
    first_step: int | None
    last_step: int | None
    reward: float | None
    """Mean."""
    launches: int
    open: int
    """Rollouts that are still going on."""
    first: float | None
    """When the first rollout was logged, Unix seconds."""
    last: float | None


_RUNS = """SELECT project, run, count(*) FILTER (NOT superseded), count(*) FILTER (superseded),
    min(step), max(step), avg(reward) FILTER (isfinite(reward) AND NOT superseded),
    count(DISTINCT launch), count(*) FILTER (open), min("time"), max("time")
FROM rollouts GROUP BY project, run"""
_NOTHING = (0, 0, None, None, None, 0, 0, None, None)


def runs(engine: Engine, known: Iterable[RunInfo]) -> list[RunSummary]:
    """Every run, newest last; also those without a rollout yet."""
    counted = {(row[0], row[1]): row[2:] for row in engine.rows(Sql(_RUNS))}
    found = [
        RunSummary(r.project, r.run, str(r.directory), *counted.get((r.project, r.run), _NOTHING))
        for r in known
    ]
    return sorted(found, key=lambda run: (run.last or 0.0, run.project, run.run))


def live(writers: Iterable[WriterInfo]) -> set[tuple[str, str]]:
    """Project and name of each run that a process is still writing to."""
    return {
        (writer.project, writer.run)
        for writer in writers
        if writer.finished is None and writer.launch != LABELS and not is_gone(writer)
    }


def algorithm(
    known: Iterable[RunInfo], run: str, launch: str | None, project: str | None
) -> Algorithm | None:
    """What the newest writer that knows the trainer's settings says, of a launch or of the run."""
    told = [
        writer
        for info in known
        if info.run == run and project in (None, info.project)
        for writer in read_infos(info.directory).values()
        if writer.algorithm is not None and launch in (None, writer.launch)
    ]
    return max(told, key=lambda writer: writer.started).algorithm if told else None
