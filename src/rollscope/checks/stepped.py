"""What happened at each step of a run, as numbers, and what checks of steps say about them.

Everything comes from thin rows, and from what was noted of each rollout when checks looked at it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec
from duckdb import DuckDBPyConnection

from ..model import Finding
from ..model.grouping import GROUP, IS_ALONE
from ..model.schema import HAS_ERROR
from ..query import Store
from ..query.overview import exactly
from ..store.tables import rows
from .look import Answer, Panel
from .subject import Steps
from .unlooked import Place

Split = str | None


class LookedStep(NamedTuple):
    """What checks of steps say about one step."""

    split: Split
    step: int
    answer: Answer
    signature: str
    """Of what they say: only news is written."""


def look_at_steps(store: Store, place: Place, panel: Panel, *, is_live: bool) -> list[LookedStep]:
    """What checks say about each step of a run. `is_live`: its last steps may not be over."""
    found = []
    asked = msgspec.json.encode(panel.stamps("step"))
    for steps in known_steps(store, place, is_live=is_live):
        where = " ".join(
            exactly(key, value)
            for key, value in (("project", place[0]), ("run", place[1]), ("split", steps.split))
            if value is not None
        )
        for step, answer in panel.steps(steps, where).items():
            found.append(LookedStep(steps.split, step, answer, _signature(answer, asked)))
    return found


def news(db: DuckDBPyConnection, place: Place, looked: Sequence[LookedStep]) -> list[LookedStep]:
    """What is not remembered yet, and steps of which something is that have gone since."""
    sql = (
        "SELECT split, step, signature FROM flags.rows "
        "WHERE subject = 'step' AND project = ? AND run = ?"
    )
    had = {(split, step): said for split, step, said in db.execute(sql, list(place)).fetchall()}
    now = {(one.split, one.step) for one in looked}
    gone = [
        LookedStep(split, step, Answer([], [], []), "gone")
        for (split, step), said in had.items()
        if (split, step) not in now and said != "gone"
    ]
    return gone + [one for one in looked if had.get((one.split, one.step)) != one.signature]


def _signature(answer: Answer, asked: bytes) -> str:
    """Of what checks say, and of the checks that were asked."""
    said = msgspec.json.encode([answer.found, answer.unobserved, answer.findings])
    return hashlib.md5(asked + said, usedforsecurity=False).hexdigest()


def step_rows(
    place: Place, looked: Sequence[LookedStep]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The same as rows of the two tables."""
    from .worker import finding_row

    for one in looked:
        about = {"project": place[0], "run": place[1], "split": one.split, "step": one.step}
        yield "checked", {
            **about, "subject": "step", "found": sorted(one.answer.found),
            "unobserved": sorted(one.answer.unobserved), "signature": one.signature,
        }  # fmt: skip
        for finding in one.answer.findings:
            yield "findings", {**about, **finding_row(finding)}


# -- numbers -------------------------------------------------------------------------------


def known_steps(store: Store, place: Place, *, is_live: bool) -> list[Steps]:
    """What is known of each step, for each split of a run."""
    told = store.algorithm(place[1], project=place[0])
    algorithm = {} if told is None else msgspec.to_builtins(told)
    numbers = store.reader.reading(lambda db: _numbers(db.cursor(), place))
    found = []
    for split, by_step in numbers.items():
        steps = sorted(by_step)
        if is_live:
            steps = _over(steps, by_step)
        found.append(Steps(split, steps, [by_step[step] for step in steps], algorithm))
    return found


def _over(steps: list[int], numbers: Mapping[int, Mapping[str, float]]) -> list[int]:
    """Without the last steps as long as they have fewer rollouts, or rewards, than is usual."""
    for name in ("rollouts", "scored"):
        usual = median([numbers[step].get(name, 0.0) for step in steps[:-1]] or [float("inf")])
        while steps and numbers[steps[-1]].get(name, 0.0) < (
            usual if name == "rollouts" else 0.9 * usual
        ):
            steps = steps[:-1]
            if len(steps) < 2:
                break
    return steps


_NOTED = ("entropy", "surprise", "gap_weight", "gap_square", "gap_kl", "gap_error", "gap")
"""Numbers of digests of which the mean over a step is taken."""

_MINE = """FROM rollouts r WHERE r."project" = ? AND r."run" = ? AND r."step" IS NOT NULL
    AND NOT r.superseded AND r."open" IS NOT TRUE"""

_NUMBERS = f"""
    WITH mine AS (
        SELECT r.*, isfinite(r."reward") AS scored,
            max(r."reward") FILTER (isfinite(r."reward")) OVER here AS most,
            min(r."reward") FILTER (isfinite(r."reward")) OVER here AS least {_MINE}
        WINDOW here AS (PARTITION BY r."split")
    )
    SELECT "split", "step", count(*) AS rollouts, count(*) FILTER (scored) AS scored,
        avg("reward") FILTER (scored) AS reward, stddev_pop("reward") FILTER (scored) AS spread,
        CASE WHEN count(*) FILTER (scored) > 0 AND any_value(most) > any_value(least) THEN
            count(*) FILTER (scored AND "reward" >= most - 0.01 * (most - least)) END AS top,
        any_value(most) - any_value(least) AS "range",
        avg("response_tokens") AS length,
        count(*) FILTER ("truncated") AS truncated, nullif(count("truncated"), 0) AS truncated_of,
        nullif(count("trained_step"), 0) AS stale_of
    FROM mine GROUP BY 1, 2"""

_OPEN = """SELECT "split", "step", count(*) AS open FROM rollouts r WHERE r."project" = ?
    AND r."run" = ? AND r."step" IS NOT NULL AND NOT r.superseded AND r."open" GROUP BY 1, 2"""

_DEAD = f"""
    SELECT "split", "step", count(*) AS groups, count(*) FILTER (low = high) AS dead FROM (
        SELECT r."split", r."step", min(r."reward") AS low, max(r."reward") AS high
        {_MINE} AND NOT ({IS_ALONE}) AND r."reward" IS NOT NULL GROUP BY {GROUP}
        HAVING count(*) > 1) GROUP BY 1, 2"""

_DIGESTS = f"""
    SELECT r."split", r."step", {
    ", ".join(f"avg(c.digest['{name}']) AS {name}" for name in _NOTED)
} {_MINE.replace("WHERE", "JOIN flags.rows c ON c.rollout = r.id AND c.subject = 'rollout' WHERE")}
    GROUP BY 1, 2"""

_PARTS = f"""
    SELECT "split", "step", concat('part:', part."key") AS name, avg(part."value") AS "value",
        any_value(n) AS parts FROM (
        SELECT r."split", r."step", unnest(map_entries(r."rewards")) AS part,
            count(*) OVER (PARTITION BY r."split", r."step") AS n
        {_MINE} AND len(map_keys(r."rewards")) > 1)
    WHERE isfinite(part."value") GROUP BY 1, 2, 3"""

_COUNTED = (
    f"""SELECT r."split", r."step", concat('error:', r."error_kind") AS name, count(*) AS "value"
        {_MINE} AND {HAS_ERROR} GROUP BY 1, 2, 3""",
    f"""SELECT r."split", r."step", concat('stale:', r."trained_step" - r."step") AS name,
        count(*) AS "value" {_MINE} AND r."trained_step" IS NOT NULL GROUP BY 1, 2, 3""",
    _PARTS,
)


def _numbers(db: DuckDBPyConnection, place: Place) -> dict[Split, dict[int, dict[str, float]]]:
    found: dict[Split, dict[int, dict[str, float]]] = {}

    def of(row: Mapping[str, Any]) -> dict[str, float]:
        return found.setdefault(row["split"], {}).setdefault(row["step"], {})

    for row in rows(db, _NUMBERS, list(place)):
        of(row).update(_known(row))
    for sql in (_OPEN, _DEAD, _DIGESTS):
        for row in rows(db, sql, list(place)):
            if "rollouts" in (numbers := of(row)) or sql is _OPEN:
                numbers.update(_known(row))
    for sql in _COUNTED:
        for row in rows(db, sql, list(place)):
            of(row)[row["name"]] = float(row["value"])
            if "parts" in row:
                of(row)["parts"] = float(row["parts"])
    for by_step in found.values():
        for step in [step for step, numbers in by_step.items() if "rollouts" not in numbers]:
            del by_step[step]  # all of its rollouts are open
        _stand_in(by_step)
    return found


def _known(row: Mapping[str, Any]) -> dict[str, float]:
    return {n: float(v) for n, v in row.items() if n not in ("split", "step") and v is not None}


def _stand_in(by_step: Mapping[int, dict[str, float]]) -> None:
    """-logprob stands for the entropy where that is not recorded, but not for some steps only."""
    if not any("entropy" in numbers for numbers in by_step.values()):
        for numbers in by_step.values():
            if "surprise" in numbers:
                numbers["entropy"] = numbers["surprise"]


def alarms(looked: Sequence[LookedStep]) -> list[Finding]:
    """What was found, in the order of steps."""
    found = [finding for one in looked for finding in one.answer.findings]
    return sorted(found, key=lambda f: (f.step or 0, f.check, f.text))
