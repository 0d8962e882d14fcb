"""A run at a glance: the ribbon of its steps, the funnel of fates, the failures."""

from __future__ import annotations

import msgspec

from .compile import Query
from .engine import Engine, select
from .groups import GROUP
from .match import pattern
from .sql import Sql
from .values import Text

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class RibbonStep(msgspec.Struct, frozen=True):
    """One step of one run and split."""

    project: str | None
    run: str | None
    split: str | None
    step: int
    count: int
    rewarded: int
    """Rollouts with a finite reward: those that mean and quantiles are taken over."""
    not_finite: int
    """Rollouts whose reward is NaN or infinite, left out of mean and quantiles."""
    reward: float | None
    """Mean."""
    quantiles: list[float] | None
    """Of the reward: 10, 25, 50, 75 and 90 %."""
    truncated: int
    errors: int
    response_tokens: float | None
    """Mean length."""
    groups: int
    dead_groups: int
    """Groups with two or more rewards that are all the same: nothing to learn from. Siblings
    that failed before they got one do not count."""


_RIBBON = """r."project", r."run", r."split", r."step",
    count(*), count(*) FILTER (isfinite(r."reward")),
    count(*) FILTER (r."reward" IS NOT NULL AND NOT isfinite(r."reward")),
    avg(r."reward") FILTER (isfinite(r."reward")),
    quantile_cont(r."reward", [0.1, 0.25, 0.5, 0.75, 0.9]) FILTER (isfinite(r."reward")),
    count(*) FILTER (r."truncated"),
    count(*) FILTER (r."error_kind" IS NOT NULL OR r."error_type" IS NOT NULL
        OR r."error_text" IS NOT NULL),
    avg(r."response_tokens")"""

_GROUPED = """r."project" AS project, r."run" AS run, r."split" AS split, r."step" AS step,
    count(r."reward") AS rewarded,
    min(r."reward") AS low, max(r."reward") AS high"""


def ribbon(engine: Engine, query: Query) -> list[RibbonStep]:
    """What happened at each step, in the order of steps."""
    stepped = Sql('r."step" IS NOT NULL')
    per_step = engine.rows(select(query, Sql(_RIBBON), Sql("GROUP BY 1, 2, 3, 4"), stepped))
    by_group = Sql(f"GROUP BY 1, 2, 3, 4, {GROUP}")
    groups = select(query, Sql(_GROUPED), by_group, stepped)
    counted = Sql(
        "SELECT project, run, split, step, count(*), "
        "count(*) FILTER (rewarded > 1 AND low = high) FROM ({}) GROUP BY 1, 2, 3, 4"
    ).fill(groups)
    dead = {tuple(row[:4]): row[4:] for row in engine.rows(counted)}
    steps = [RibbonStep(*row, *dead.get(tuple(row[:4]), (0, 0))) for row in per_step]
    return sorted(steps, key=lambda s: (s.project or "", s.run or "", s.split or "", s.step))


class Loss(msgspec.Struct, frozen=True):
    """Rollouts that did not reach a stage, and why."""

    fate: str | None
    reason: str | None
    count: int
    query: str
    """Finds exactly these."""


class Stage(msgspec.Struct, frozen=True):
    """How many rollouts came this far; `lost` are those of the stage before that did not."""

    name: str
    count: int
    query: str
    lost: list[Loss]


_ENDS = ("dropped", "masked", "rejected", "failed")
_FUNNEL = {
    "generated": "",
    "scored": "has:reward",
    "kept": f"has:reward -fate:{','.join(_ENDS)}",
    "trained": "has:reward fate:trained",
}


def funnel(engine: Engine, query: Query) -> list[Stage]:
    """generated → scored → kept → trained. Each stage and its losses add up to the one before."""
    columns = Sql('r."fate", r."fate_reason", r."reward" IS NOT NULL, count(*)')
    rows = engine.rows(select(query, columns, Sql("GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2")))
    stages = []
    for name, terms in _FUNNEL.items():
        count = sum(n for fate, _, scored, n in rows if _reached(fate, scored) >= _STAGES[name])
        lost = [
            Loss(fate, reason, n, _joined(query.text, _loss(fate, reason, scored)))
            for fate, reason, scored, n in rows
            if _reached(fate, scored) == _STAGES[name] - 1
        ]
        stages.append(Stage(name, count, _joined(query.text, terms), lost))
    return stages


def fates(engine: Engine, query: Query) -> list[tuple[str | None, str | None, int]]:
    """Where rollouts ended: fate, reason and count, the commonest first."""
    columns = Sql('r."fate", r."fate_reason", count(*)')
    tail = Sql("GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2")
    return [(fate, why, n) for fate, why, n in engine.rows(select(query, columns, tail))]


_STAGES = {name: place for place, name in enumerate(_FUNNEL)}


def _reached(fate: str | None, scored: bool) -> int:
    if not scored:
        return 0
    if fate in _ENDS:
        return 1
    return 3 if fate == "trained" else 2


def _loss(fate: str | None, reason: str | None, scored: bool) -> str:
    rewarded = "has:reward" if scored else "-has:reward"
    return f"{rewarded} {_one('fate', fate)} {_one('fate_reason', reason)}"


class Failure(msgspec.Struct, frozen=True):
    """Rollouts that failed in the same way."""

    kind: str | None
    """Whose fault; `limit` for those that were cut off without an error."""
    type: str | None
    count: int
    text: str | None
    """What one of them said."""
    first_step: int | None
    last_step: int | None
    examples: list[str]
    """Ids, the newest first."""
    query: str
    """Finds exactly these."""


def failures(engine: Engine, query: Query, examples: int = 3) -> list[Failure]:
    """Failures by whose fault it was and the error's type, the commonest first."""
    errored = (
        '(r."error_kind" IS NOT NULL OR r."error_type" IS NOT NULL OR r."error_text" IS NOT NULL)'
    )
    columns = Sql(
        f'{errored}, r."error_kind", r."error_type", count(*), arg_max(r."error_text", '
        f'r."time"), min(r."step"), max(r."step"), '
        f'list(r."id" ORDER BY r."time" DESC NULLS LAST, r."id")[:{int(examples)}]'
    )
    rows = engine.rows(
        select(query, columns, Sql("GROUP BY 1, 2, 3 ORDER BY 4 DESC, 2, 3"),
               Sql(f'{errored} OR r."truncated"'))
    )  # fmt: skip
    made = []
    for with_error, kind, type, count, text, first, last, ids in rows:
        terms = f"{_one('error_kind', kind)} {_one('error_type', type)}"
        if not with_error:
            kind, terms = "limit", "truncated:true error:none"
        elif kind is None and type is None:
            terms += " has:error"
        found = _joined(query.text, terms)
        made.append(Failure(kind, type, count, text, first, last, ids, found))
    return made


def _one(key: str, value: str | None) -> str:
    return f"{key}:none" if value is None else exactly(key, value)


def exactly(key: str, value: str) -> str:
    """A term that holds for exactly this text, whatever stands in it."""
    if key == "fate_reason" or key == "error_text":
        return f"{key}:/^{pattern(Text('exact', value))}$/"
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}:"{plain}"'


def _joined(*queries: str) -> str:
    """All of them together, as a person would write it."""
    parts = [query.strip() for query in queries if query.strip()]
    parts = [f"({part})" if "OR" in part else part for part in parts]
    return " ".join(parts)


def metrics(engine: Engine, project: str | None, run: str) -> dict[str, list[tuple[int, float]]]:
    """The trainer's own numbers of a run: for each name its (step, value)s in order.

    Where a step was logged twice, as after a restart, the later one counts.
    """
    where = 'm."run" = ?' if project is None else 'm."run" = ? AND m."project" = ?'
    params = (run,) if project is None else (run, project)
    sql = Sql(
        'SELECT m."name", m."step", arg_max(m."value", m."time") FROM metrics m '
        f'WHERE {where} AND m."step" IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2',
        params,
    )
    series: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in engine.rows(sql):
        series.setdefault(name, []).append((step, value))
    return series
