"""What usually holds in a run: checks of groups find what departs from it.

A trainer's settings are not always known. But where nearly all groups keep a rule, the one that
does not is odd; where few do, nothing can be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from duckdb import DuckDBPyConnection

from ..model.grouping import GROUP, IS_ALONE
from ..query import Store
from ..store.tables import rows

Place = tuple[str, str]
"""Project and name of a run."""


class Habits(NamedTuple):
    """What holds in a run."""

    sizes: Mapping[Any, int]
    """The usual size of a group, by split."""
    shares: Mapping[Any, Mapping[str, float]]
    """By split: see `_SHARES` and `_PARTS`."""
    prompts: Mapping[tuple[Any, ...], int]
    """Several prompts of one task at one step, by split, step, dataset, environment and task."""

    twins: Mapping[tuple[Any, ...], Mapping[float, int]]
    """Texts that several groups have, by split and step: see `_TWINS`."""

    def elsewhere(self, row: Mapping[str, Any]) -> Mapping[float, int]:
        """Texts that several groups have at the step of this rollout."""
        return self.twins.get((row["split"], row["step"]), {})

    def size(self, row: Mapping[str, Any]) -> int | None:
        """Of the group of this rollout."""
        return self.sizes.get(row["split"])

    def about(self, row: Mapping[str, Any]) -> dict[str, float]:
        """What holds around the group of this rollout."""
        found = dict(self.shares.get(row["split"], {}))
        task = tuple(row[name] for name in ("split", "step", "dataset", "environment", "task"))
        if task in self.prompts:
            found["task_prompts"] = float(self.prompts[task])
        return found


def habits(store: Store, place: Place) -> Habits:
    """What holds in a run as it is now."""

    def ask(db: DuckDBPyConnection) -> Habits:
        shares: dict[Any, dict[str, float]] = {}
        for sql in (_SHARES, _PROMPTS, _PARTS):
            for row in rows(db, sql, list(place)):
                known = {n: float(v) for n, v in row.items() if n != "split" and v is not None}
                shares.setdefault(row["split"], {}).update(known)
        mixed = db.execute(_TASKS, list(place)).fetchall()
        twins: dict[tuple[Any, ...], dict[float, int]] = {}
        for split, step, said, groups in db.execute(_TWINS, list(place)).fetchall():
            twins.setdefault((split, step), {})[said] = groups
        prompts = {tuple(row[:-1]): row[-1] for row in mixed}
        return Habits(_sizes(db, place), shares, prompts, twins)

    return store.reader.reading(lambda db: ask(db.cursor()))


def _sizes(db: DuckDBPyConnection, place: Place) -> dict[Any, int]:
    """Only where nearly all groups have the same."""
    found = db.execute(_SIZES, list(place)).fetchall()
    return {split: int(size) for split, size, share, n in found if share >= 0.8 and n >= 5}


_MINE = """FROM rollouts r WHERE r."project" = ? AND r."run" = ? AND NOT r.superseded
    AND r."open" IS NOT TRUE"""

_PLACES = """count(DISTINCT coalesce(r."index"::VARCHAR, r.id))"""
"""How many places a group has: a retry has that of what it retries."""

_SIZES = f"""
    SELECT "split", mode(size), count(*) FILTER (size = usual) / count(*), count(*)
    FROM (SELECT r."split", {_PLACES} AS size, mode({_PLACES}) OVER (PARTITION BY r."split")
            AS usual {_MINE} AND NOT ({IS_ALONE}) GROUP BY {GROUP})
    GROUP BY 1"""

# `kept`: a higher reward has no lower advantage; `turned`: no higher one; `signed`: what is above
# the mean is not pushed down; `balanced`: the mean is 0. Of groups whose rewards differ.
_SHARES = f"""
    WITH known AS (
        SELECT r.*, avg(r."reward") OVER (PARTITION BY {GROUP}) AS middle
        {_MINE} AND NOT ({IS_ALONE}) AND isfinite(r."reward") AND isfinite(r."advantage")
    ),
    groups AS (
        SELECT r."split", max(abs(r."advantage")) AS largest, avg(r."advantage") AS middle,
            list(round(r."advantage", 5) ORDER BY r."reward", r."advantage") AS up,
            list(round(r."advantage", 5) ORDER BY r."reward" DESC, r."advantage") AS down,
            bool_and((r."reward" - middle) * r."advantage" >= -1e-9) AS signed
        FROM known r GROUP BY {GROUP}
        HAVING count(*) > 1 AND max(r."reward") > min(r."reward")
    )
    SELECT "split", count(*) AS groups, avg((up = list_sort(up))::INT) AS kept,
        avg((down = list_sort(down))::INT) AS turned, avg(signed::INT) AS signed,
        avg((abs(middle) <= 1e-2 * largest + 1e-6)::INT) AS balanced
    FROM groups GROUP BY 1"""

LONG = 400
"""Characters that two texts share by no chance; ours."""

_NOTED = f"""SELECT r.*, c.digest['prompt'] AS noted, c.digest['said'] AS said,
    c.digest['chars'] >= {LONG} AND c.digest['greedy'] IS NULL AS is_long {
    _MINE.replace(
        "FROM rollouts r",
        "FROM rollouts r JOIN flags.rows c ON c.rollout = r.id AND c.subject = 'rollout'",
    )
}"""

_PROMPTS = f"""
    SELECT "split", count(*) AS prompted, avg((prompts = 1)::INT) AS prompts
    FROM (SELECT r."split", count(DISTINCT noted) AS prompts FROM ({_NOTED}) r
        WHERE noted IS NOT NULL AND NOT ({IS_ALONE}) GROUP BY {GROUP} HAVING count(*) > 1)
    GROUP BY 1"""

_TASKS = f"""
    SELECT "split", "step", "dataset", "environment", "task", count(*) FROM (
        SELECT "split", "step", "dataset", "environment", "task", noted, count(*) AS n
        FROM ({_NOTED}) WHERE noted IS NOT NULL AND "task" IS NOT NULL GROUP BY ALL)
    GROUP BY 1, 2, 3, 4, 5 HAVING count(*) > 1 AND min(n) > 1"""

_TWINS = f"""
    SELECT "split", "step", said, count(*) FROM (
        SELECT r."split", r."step", said FROM ({_NOTED}) r
        WHERE is_long AND "step" IS NOT NULL
        GROUP BY {GROUP}, CASE WHEN {IS_ALONE} THEN r.id END, said, r."split", r."step")
    GROUP BY 1, 2, 3 HAVING count(*) > 1"""

_PARTS = f"""
    SELECT "split", count(*) AS parts,
        avg((abs(r."reward" - total) <= 1e-3 * greatest(1, abs(total)))::INT) AS parts_sum,
        avg((abs(r."reward" - total / n) <= 1e-3 * greatest(1, abs(total)))::INT) AS parts_mean
    FROM (SELECT r."split", r."reward", list_sum(map_values(r."rewards")) AS total,
        len(map_values(r."rewards")) AS n {_MINE}) r
    WHERE isfinite(r."reward") AND isfinite(total) GROUP BY 1"""
