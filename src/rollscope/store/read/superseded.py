"""Which rollouts a restart has made again.

A rollout is superseded only by one in the same slot (split, step, task, index, attempt) of a
launch that began after the earlier one's last write. A slot counts only if step, task and
index are known. Nothing else is ever hidden; imported files hide nothing and are not hidden.

If nobody named the launch, each process is a launch of its own. If such a process ended normally,
it has done its work: the next one is another worker and hides nothing. If it was killed or ended by
an exception, the next one counts as its restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from duckdb import DuckDBPyConnection

from ..units import Times
from ..writers import IMPORT, PROCESS, WriterInfo


def without_completed(
    launches: Mapping[str, Times], infos: Iterable[WriterInfo]
) -> dict[str, Times]:
    """The launches, without imports, which restart nothing. One that was a single process and ended
    normally gets an infinite end: then no later launch began after it, and none can be its
    restart."""
    writers = list(infos)
    completed = {info.launch for info in writers if info.launch.startswith(PROCESS)} - {
        info.launch for info in writers if info.finished is None or info.crashed
    }
    return {
        launch: Times(times.begin, math.inf) if launch in completed else times
        for launch, times in launches.items()
        if launch != IMPORT
    }


def may_supersede(launches: Mapping[str, Times]) -> bool:
    """Did one of these launches begin after another's last write?"""
    begins = [t.begin for t in launches.values() if t.begin is not None]
    lasts = [t.last for t in launches.values() if t.last is not None]
    return len(launches) > 1 and bool(begins and lasts) and max(begins) > min(lasts)


def hide(db: DuckDBPyConnection, project: str, run: str, launches: Mapping[str, Times]) -> None:
    """Work `tail.hidden` out again for a run, from the view `rollouts`."""
    db.execute("DELETE FROM tail.hidden WHERE project = ? AND run = ?", [project, run])
    if not may_supersede(launches):
        return
    db.execute("CREATE OR REPLACE TEMP TABLE launches (launch VARCHAR, begin DOUBLE, last DOUBLE)")
    rows = [
        [launch, times.begin, times.last]
        for launch, times in launches.items()
        if times.begin is not None and times.last is not None
    ]
    db.executemany("INSERT INTO launches VALUES (?, ?, ?)", rows)
    db.execute(
        """
        INSERT INTO tail.hidden
        WITH mine AS (
            SELECT * FROM rollouts WHERE project = $project AND run = $run
        ),
        shared AS (SELECT step FROM mine GROUP BY step HAVING count(DISTINCT launch) > 1)
        SELECT $project, $run, id FROM (
            SELECT id, last, max(begin) OVER (PARTITION BY split, step, task, "index", attempt)
                AS newest
            FROM mine JOIN launches USING (launch)
            WHERE step IN (SELECT step FROM shared) AND task IS NOT NULL AND "index" IS NOT NULL
        ) WHERE newest > last
        """,
        {"project": project, "run": run},
    )
