"""Which rollouts a restart has made again.

A rollout is superseded only by one in the same slot (split, step, dataset, task, index, attempt) of
a launch that began after the earlier one's last write; `launches` knows which did. A slot counts
only if step, task and index are known. Nothing else is ever hidden; imported files hide nothing and
are not hidden.

If nobody named the launch, each process is a launch of its own. If such a process ended normally,
it has done its work: the next one is another worker and hides nothing. If it was killed or ended by
an exception, the next one counts as its restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from .. import launches
from ..listing import RunFiles
from ..units import Times
from ..writers import IMPORT, PROCESS, WriterInfo


class Restart(NamedTuple):
    """Two launches of a run."""

    older: str
    newer: str
    """Began after the last write of the older one."""


def restarts(
    times: Mapping[str, Times], files: RunFiles, infos: Collection[WriterInfo]
) -> list[Restart]:
    """Which launches began after which. Imports restart nothing. A single process that ended
    normally has done its work: no later launch is its restart."""
    written, found = launches.written(files, infos), launches.found(infos)
    completed = _completed(infos)

    def is_after(newer: str, older: str) -> bool:
        if older in found.get(newer, {}):
            return written.get(older, 0) <= found[newer][older]
        if newer in found.get(older, {}):
            return False  # it was there before
        begin, last = times[newer].begin, times[older].last
        return begin is not None and last is not None and begin > last

    return [
        Restart(older, newer)
        for older in times
        if older not in completed and older != IMPORT
        for newer in times
        if newer not in (older, IMPORT) and is_after(newer, older)
    ]


def _completed(infos: Iterable[WriterInfo]) -> set[str]:
    """Launches that were a single process each and ended normally."""
    infos = list(infos)
    return {info.launch for info in infos if info.launch.startswith(PROCESS)} - {
        info.launch for info in infos if info.finished is None or info.crashed
    }


def hide(db: DuckDBPyConnection, project: str, run: str, found: list[Restart]) -> None:
    """Work `tail.hidden` out again for a run, from the view `rollouts`."""
    db.execute("DELETE FROM tail.hidden WHERE project = ? AND run = ?", [project, run])
    if not found:
        return
    db.execute("CREATE OR REPLACE TEMP TABLE restarts (older VARCHAR, newer VARCHAR)")
    db.execute(
        "INSERT INTO restarts SELECT unnest($older), unnest($newer)",
        {"older": [pair.older for pair in found], "newer": [pair.newer for pair in found]},
    )
    db.execute(
        """
        INSERT INTO tail.hidden
        WITH mine AS (
            SELECT * FROM rollouts WHERE project = $project AND run = $run
        ),
        shared AS (SELECT step FROM mine GROUP BY step HAVING count(DISTINCT launch) > 1),
        slots AS (
            SELECT id, launch, list(DISTINCT launch)
                OVER (PARTITION BY split, step, dataset, task, "index", attempt) AS there
            FROM mine
            WHERE step IN (SELECT step FROM shared) AND task IS NOT NULL AND "index" IS NOT NULL
        )
        SELECT DISTINCT $project, $run, id
        FROM (SELECT id, launch AS older, unnest(there) AS newer FROM slots WHERE len(there) > 1)
        SEMI JOIN restarts USING (older, newer)
        """,
        {"project": project, "run": run},
    )
