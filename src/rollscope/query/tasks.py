"""Tasks over time: which are learned, which are lost again, which never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rollscope.model.solved import FLIPS, KIND, KINDS, RATE, SCORED, SOLVED, Kind

from .compile import Query
from .engine import Engine, select
from .sql import Sql


class Task(msgspec.Struct, frozen=True):
    """One task over all steps, splits and runs of a selection.

    A rate is the share of solved rollouts at one step, leaving out rollouts without a reward or
    with NaN. First, last, best and worst rate are means over runs and splits: see `model.solved`.
    A task without steps has no first and no last.
    """

    dataset: str | None
    task: str
    count: int = msgspec.field(name="rollouts")
    runs: int
    """In how many runs it came."""
    steps: int
    """At how many steps it came."""
    rate: float | None
    """Of all its rollouts."""
    first_step: int | None
    last_step: int | None
    first_rate: float | None
    last_rate: float | None
    best_rate: float | None
    worst_rate: float | None
    first_success: int | None
    """The first step at which it was solved at all."""
    flips: int
    """How often it changed, from one step to the next, between mostly solved and mostly not."""
    regression: float | None
    """How much the last rate lies below the best one."""
    reward: float | None
    """Mean."""
    response_tokens: float | None
    """Mean."""
    kind: Kind
    """What became of it: see `model.solved`. Every task is of one kind."""
    preview: str | None = None
    """How its prompt begins, if that was asked for."""


_PER_STEP = f"""r."project" AS project, r."run" AS run, r."split" AS split,
    r."dataset" AS dataset, r."task" AS task, r."step" AS step, count(*) AS n,
    {RATE} AS rate, {SCORED} AS scored,
    sum(r."reward") FILTER (isfinite(r."reward")) AS reward,
    count(*) FILTER (isfinite(r."reward")) AS rewarded,
    sum(r."response_tokens") AS tokens, count(r."response_tokens") AS counted"""

_TASKS = f"""
WITH per AS ({{}}),
compared AS (
    SELECT *, lag(rate) OVER (
        PARTITION BY project, run, split, dataset, task ORDER BY step
    ) AS before FROM per WHERE rate IS NOT NULL
),
lanes AS (
    SELECT dataset, task, bool_or(step IS NOT NULL) AS has_steps,
        coalesce(arg_min(rate, step) FILTER (step IS NOT NULL), any_value(rate)) AS first,
        coalesce(arg_max(rate, step) FILTER (step IS NOT NULL), any_value(rate)) AS last,
        coalesce(max(rate) FILTER (step IS NOT NULL), any_value(rate)) AS best,
        coalesce(min(rate) FILTER (step IS NOT NULL), any_value(rate)) AS worst,
        min(step) FILTER (rate > 0) AS success, {FLIPS} AS flips
    FROM compared GROUP BY project, run, split, dataset, task
),
rates AS (
    SELECT dataset, task,
        avg(first) FILTER (any_steps) AS first_rate, avg(last) FILTER (any_steps) AS last_rate,
        avg(best) AS best_rate, avg(worst) AS worst_rate,
        min(success) AS success, sum(flips)::BIGINT AS flips
    FROM (SELECT *, bool_or(has_steps) OVER (PARTITION BY dataset, task) AS any_steps FROM lanes)
    GROUP BY dataset, task
),
counts AS (
    SELECT dataset, task, sum(n)::BIGINT AS count, count(DISTINCT (project, run)) AS runs,
        count(DISTINCT step) AS steps, min(step) AS first_step, max(step) AS last_step,
        sum(rate * scored) / nullif(sum(scored), 0) AS rate,
        sum(reward) / nullif(sum(rewarded), 0) AS reward,
        sum(tokens) / nullif(sum(counted), 0) AS tokens
    FROM per GROUP BY dataset, task
)
SELECT c.dataset, c.task, count, runs, steps, rate, first_step, last_step,
    first_rate, last_rate, best_rate, worst_rate, success, coalesce(flips, 0) AS flips,
    best_rate - last_rate AS regression, reward, tokens, {KIND} AS kind
FROM counts c LEFT JOIN rates s
    ON s.task = c.task AND s.dataset IS NOT DISTINCT FROM c.dataset"""

_CHANGED = "flips DESC, regression DESC NULLS LAST"
_ORDERS = dict.fromkeys(KINDS, "count DESC") | {
    "flipped": _CHANGED,
    "regressed": "regression DESC",
    "mixed": _CHANGED,
}
"""By kind, the strongest case first."""


def tasks(
    engine: Engine,
    query: Query,
    kind: Kind | None = None,
    solved: float = SOLVED,
    limit: int = 1000,
) -> list[Task]:
    """The tasks of a selection; of one kind, the strongest case first."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"tasks of kind {kind!r}: expected one of {', '.join(KINDS)}")
    per_step = select(query, Sql(_PER_STEP, (solved,)), Sql("GROUP BY 1, 2, 3, 4, 5, 6"), _HAS_TASK)
    order = _ORDERS[kind] if kind else _CHANGED
    sql = Sql(
        f"SELECT * FROM ({_TASKS}) WHERE kind = coalesce(?, kind) "
        f"ORDER BY {order}, dataset, task LIMIT ?",
        (kind, int(limit)),
    )
    return [Task(*row) for row in engine.rows(sql.fill(per_step))]


_HAS_TASK = Sql('r."task" IS NOT NULL')


_BY_NAME = dict(zip(Task.__struct_encode_fields__, Task.__struct_fields__, strict=True))
ORDERS = (*_BY_NAME, "change")
"""What tasks can be sorted by: their fields, as JSON names them, and last rate less first rate."""


def ordered(tasks: Iterable[Task], order: str) -> list[Task]:
    """Sorted by one of `ORDERS`, `-` before it for the greatest first; missing values last."""
    name, down = order.removeprefix("-"), order.startswith("-")
    if name not in ORDERS:
        raise ValueError(f"tasks cannot be sorted by {name!r}: {', '.join(sorted(ORDERS))}")

    def value(task: Task) -> Any:
        if name != "change":
            return getattr(task, _BY_NAME[name])
        if task.first_rate is None or task.last_rate is None:
            return None
        return task.last_rate - task.first_rate

    valued = [(value(task), task) for task in tasks]
    known = [pair for pair in valued if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=down)
    return [task for _, task in known] + [task for found, task in valued if found is None]


_PREVIEWS = """SELECT r."dataset", r."task", any_value(r."prompt_preview")[:300] FROM rollouts r
    WHERE r."task" IN (SELECT unnest(?)) GROUP BY 1, 2"""


def with_previews(engine: Engine, tasks: Sequence[Task]) -> list[Task]:
    """The same tasks, each with the beginning of its prompt."""
    rows = engine.rows(Sql(_PREVIEWS, ([task.task for task in tasks],)))
    found = {(dataset, task): preview or None for dataset, task, preview in rows}
    return [replace(task, preview=found.get((task.dataset, task.task))) for task in tasks]
