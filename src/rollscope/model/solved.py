"""When a task is solved, flipped or regressed.

A rollout is solved from a reward of one half on. At one step of one run and split, a task has a
rate: the share of its rollouts that are solved. Rollouts without a reward, or with one that is NaN,
are left out. From a rate of one half on, the task is mostly solved there.

Over its steps a task is of exactly one kind:

- `not scored`: no rollout of it has a reward.
- `never`: no rollout of it was ever solved.
- `always`: every rollout of it was.
- `regressed`: it was mostly solved at some step, and is not at the last one.
- `flipped`: it was mostly not solved at the first step, and mostly is at the last one.
- `mixed`: anything else; also a task without steps, where nothing comes first or last.

So a task that was learned and lost again has regressed, however it began. How often a task went
back and forth is another question: its flips are counted, whatever its kind.

Several runs and splits are taken together by means: its first rate is the mean of their first
rates, each at the first step of its own, and so are its last, best and worst rates. So no word
comes of two runs that differ from each other: of a task that one run always solves and two never
do, nothing was learned or lost. A run without steps counts with its one rate, if others have steps.

The SQL speaks of the columns of one task; a test holds it and the Python to the same answers.
"""

from __future__ import annotations

from typing import Literal, get_args

SOLVED = 0.5
"""A rollout is solved from this reward on, unless asked otherwise."""

MOSTLY = 0.5
"""A task is mostly solved at a step from this rate on."""

_IS_SCORED = 'r."reward" IS NOT NULL AND NOT isnan(r."reward")'

RATE = f"""avg(CASE WHEN r."reward" >= ? THEN 1.0 ELSE 0.0 END) FILTER ({_IS_SCORED})"""
"""The rate of the rollouts `r` of a task at one step, by the reward from which one is solved."""

SCORED = f"count(*) FILTER ({_IS_SCORED})"
"""How many of them have a reward that says whether they are solved."""

FLIPS = f"count(*) FILTER ((rate >= {MOSTLY}) <> (before >= {MOSTLY}))"
"""How often a task changed between mostly solved and mostly not, over rows of one step each: its
`rate`, and the rate of the step `before` it in the same run and split."""

Kind = Literal["flipped", "regressed", "mixed", "never", "always", "not scored"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def kind_of(
    first: float | None, last: float | None, best: float | None, worst: float | None
) -> Kind:
    """The kind of a task with these rates."""
    if best is None:
        return "not scored"
    if best == 0:
        return "never"
    if worst == 1:
        return "always"
    if first is None or last is None:
        return "mixed"
    if best >= MOSTLY > last:
        return "regressed"
    return "flipped" if first < MOSTLY <= last else "mixed"


KIND = f"""CASE WHEN best_rate IS NULL THEN 'not scored'
    WHEN best_rate = 0 THEN 'never'
    WHEN worst_rate = 1 THEN 'always'
    WHEN first_rate IS NULL OR last_rate IS NULL THEN 'mixed'
    WHEN best_rate >= {MOSTLY} AND last_rate < {MOSTLY} THEN 'regressed'
    WHEN first_rate < {MOSTLY} AND last_rate >= {MOSTLY} THEN 'flipped'
    ELSE 'mixed' END"""
