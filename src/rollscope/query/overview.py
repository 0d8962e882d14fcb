"""A run at a glance: the ribbon of its steps, the funnel of fates, the failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from rollscope.model.grouping import GROUP, IS_ALONE
from rollscope.model.schema import HAS_ERROR

from .compile import Query
from .engine import Engine, select
from .match import pattern
from .sql import Sql
from .values import Text


class StepNumbers(msgspec.Struct, frozen=True):
    """What happened at one step."""

    step: int
    count: int = msgspec.field(name="rollouts")
    rewarded: int = msgspec.field(name="scored")
    """Rollouts with a finite reward: those that mean and quantiles are taken over."""
    reward: float | None = msgspec.field(name="mean")
    """Mean."""
    low: float | None
    """10th percentile of the reward."""
    high: float | None
    """90th percentile of the reward."""
    truncated: int
    errors: int
    response_tokens: float | None = msgspec.field(name="length")
    """Mean length."""
    groups: int
    dead_groups: int = msgspec.field(name="dead")
    """Groups with two or more rewards that are all the same: nothing to learn from. Siblings
    that failed before they got one do not count."""


class RibbonStep(StepNumbers, frozen=True):
    """One step of one run and split."""

    project: str | None
    run: str | None
    split: str | None
    not_finite: int
    """Rollouts whose reward is NaN or infinite, left out of mean and quantiles."""
    quantiles: list[float] | None
    """Of the reward: 10, 25, 50, 75 and 90 %."""


_QUANTILES = """(quantile_cont(r."reward", [0.1, 0.25, 0.5, 0.75, 0.9])
    FILTER (isfinite(r."reward")))"""

_RIBBON = f"""r."step", count(*), count(*) FILTER (isfinite(r."reward")),
    avg(r."reward") FILTER (isfinite(r."reward")), {_QUANTILES}[1], {_QUANTILES}[-1],
    count(*) FILTER (r."truncated"),
    count(*) FILTER ({HAS_ERROR}),
    avg(r."response_tokens"), r."project", r."run", r."split",
    count(*) FILTER (r."reward" IS NOT NULL AND NOT isfinite(r."reward")), {_QUANTILES}"""

_GROUPED = f"""r."project" AS project, r."run" AS run, r."split" AS split, r."step" AS step,
    count(*) AS count, bool_and({IS_ALONE}) AS alone, count(r."reward") AS rewarded,
    min(r."reward") AS low, max(r."reward") AS high"""


def ribbon(engine: Engine, query: Query) -> list[RibbonStep]:
    """What happened at each step, in the order of steps."""
    stepped = Sql('r."step" IS NOT NULL')
    place = Sql('GROUP BY r."project", r."run", r."split", r."step"')
    per_step = engine.rows(select(query, Sql(_RIBBON), place, stepped))
    groups = select(query, Sql(_GROUPED), Sql(f"GROUP BY {GROUP}"), stepped)
    counted = Sql(
        "SELECT project, run, split, step, sum(CASE WHEN alone THEN count ELSE 1 END)::BIGINT, "
        "count(*) FILTER (rewarded > 1 AND low = high AND NOT alone) FROM ({}) GROUP BY 1, 2, 3, 4"
    ).fill(groups)
    dead = {tuple(row[:4]): row[4:] for row in engine.rows(counted)}
    steps = []
    for step, *numbers, project, run, split, not_finite, quantiles in per_step:
        found = dead.get((project, run, split, step), (0, 0))
        row = (step, *numbers, *found, project, run, split, not_finite, quantiles)
        steps.append(RibbonStep(*row))
    return sorted(steps, key=lambda s: (s.project or "", s.run or "", s.split or "", s.step))


class Tally(msgspec.Struct, frozen=True):
    """A count with a name, and the query that finds exactly what was counted."""

    name: str
    count: int
    query: str = msgspec.field(name="q")
    reasons: list[Tally] = []
    """What it is made of, or why rollouts of the stage before did not come so far."""


_ENDS = ("dropped", "masked", "rejected", "failed")
_FUNNEL = {
    "generated": "",
    "scored": "has:reward",
    "kept": f"has:reward -fate:{','.join(_ENDS)}",
    "trained": "has:reward fate:trained",
}


def funnel(engine: Engine, query: Query) -> list[Tally]:
    """generated → scored → kept → trained. Each stage and its losses add up to the one before.
    Where no fate was recorded, nobody knows the last two: they are left out."""
    columns = Sql('r."fate", r."fate_reason", r."reward" IS NOT NULL, count(*)')
    rows = engine.rows(select(query, columns, Sql("GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2")))
    told = any(fate is not None for fate, *_ in rows)
    stages = []
    for name, terms in _FUNNEL.items() if told else list(_FUNNEL.items())[:_TOLD]:
        count = sum(n for fate, _, scored, n in rows if _reached(fate, scored) >= _STAGES[name])
        lost = [row for row in rows if _reached(row[0], row[2]) == _STAGES[name] - 1]
        reasons = [
            reason
            for fate, scored in dict.fromkeys((fate, scored) for fate, _, scored, _ in lost)
            for reason in _reasons(
                [(reason, n) for f, reason, has, n in lost if (f, has) == (fate, scored)],
                joined(query.text, f"{'' if scored else '-'}has:reward {_one('fate', fate)}"),
                fate or "not known",
            )
        ]
        reasons.sort(key=lambda reason: -reason.count)
        stages.append(Tally(name, count, joined(query.text, terms), reasons))
    return stages


def fates(engine: Engine, query: Query) -> list[Tally]:
    """Where rollouts ended, each fate with its reasons; the commonest first."""
    columns = Sql('r."fate", r."fate_reason", count(*)')
    rows = engine.rows(select(query, columns, Sql("GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2")))
    ends = []
    for fate in dict.fromkeys(fate for fate, _, _ in rows):
        mine = [(reason, n) for other, reason, n in rows if other == fate]
        found = joined(query.text, _one("fate", fate))
        reasons = _reasons([one for one in mine if one[0] is not None], found, "")
        count = sum(n for _, n in mine)
        ends.append(Tally(fate or "fate not known", count, found, reasons))
    return sorted(ends, key=lambda end: -end.count)


_NUMBER = r"[0-9]+(?:\.[0-9]+)*"


def _reasons(counted: Sequence[tuple[str | None, int]], found: str, otherwise: str) -> list[Tally]:
    """Reasons that differ only in numbers are one: `version N is too old`; the commonest first.
    `otherwise`: what it is called where there is none."""
    alike: dict[tuple[str, ...] | None, list[tuple[str | None, int]]] = {}
    for reason, n in counted:
        pieces = None if reason is None else tuple(re.split(_NUMBER, reason))
        alike.setdefault(pieces, []).append((reason, n))
    made = []
    for pieces, same in alike.items():
        name, term = same[0][0], _one("fate_reason", same[0][0])
        if pieces is not None and len(same) > 1:
            written = _NUMBER.join(pattern(Text("exact", piece)) for piece in pieces)
            name, term = "N".join(pieces), f"fate_reason:/^{written}$/"
        made.append(Tally(name or otherwise, sum(n for _, n in same), f"{found} {term}"))
    return sorted(made, key=lambda reason: -reason.count)


_STAGES = {name: place for place, name in enumerate(_FUNNEL)}
_TOLD = 2  # stages that are known without fates


def _reached(fate: str | None, scored: bool) -> int:
    if not scored:
        return 0
    if fate in _ENDS:
        return 1
    return 3 if fate == "trained" else 2


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
    query: str = msgspec.field(name="q")
    """Finds exactly these."""


def failures(engine: Engine, query: Query, examples: int = 3) -> list[Failure]:
    """Failures by whose fault it was and the error's type, the commonest first."""
    columns = Sql(
        f'{HAS_ERROR}, r."error_kind", r."error_type", count(*), arg_max(r."error_text", '
        f'r."time"), min(r."step"), max(r."step"), '
        f'list(r."id" ORDER BY r."time" DESC NULLS LAST, r."id")[:{int(examples)}]'
    )
    rows = engine.rows(
        select(query, columns, Sql("GROUP BY 1, 2, 3 ORDER BY 4 DESC, 2, 3"),
               Sql(f'{HAS_ERROR} OR r."truncated"'))
    )  # fmt: skip
    made = []
    for with_error, kind, type, count, text, first, last, ids in rows:
        terms = f"{_one('error_kind', kind)} {_one('error_type', type)}"
        if not with_error:
            kind, terms = "limit", "truncated:true error:none"
        elif kind is None and type is None:
            terms += " has:error"
        found = joined(query.text, terms)
        made.append(Failure(kind, type, count, text, first, last, ids, found))
    return made


def failure_kinds(query: Query, failures: Iterable[Failure]) -> list[Tally]:
    """The same failures, only by whose fault they were."""
    counts: dict[str | None, int] = {}
    for failure in failures:
        counts[failure.kind] = counts.get(failure.kind, 0) + failure.count
    kinds = []
    for kind, count in counts.items():
        terms = "has:error error_kind:none" if kind is None else exactly("error_kind", kind)
        if kind == "limit":
            terms = "error_kind:limit OR (truncated:true error:none)"
        kinds.append(Tally(kind or "not known", count, joined(query.text, terms)))
    return sorted(kinds, key=lambda kind: -kind.count)


def _one(key: str, value: str | None) -> str:
    return f"{key}:none" if value is None else exactly(key, value)


def exactly(key: str, value: str) -> str:
    """A term that holds for exactly this text, whatever stands in it."""
    if key == "fate_reason" or key == "error_text":
        return f"{key}:/^{pattern(Text('exact', value))}$/"
    if re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII) and value not in ("none", "nan"):
        return f"{key}:{value}"  # as a person would type it
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}:"{plain}"'


def joined(*queries: str) -> str:
    """All of them together, as a person would write it."""
    parts = [query.strip() for query in queries if query.strip()]
    parts = [f"({part})" if re.search(r"(?<!\S)OR(?!\S)", part) else part for part in parts]
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
