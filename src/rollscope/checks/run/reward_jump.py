"""The mean reward changes at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from statistics import fmean
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import EARLY, RECENT, Line, Window, onsets

BEFORE = 2 * EARLY
"""Steps that tell where the reward was going, at most."""


@check(
    "run.reward_jump",
    version=2,
    kind="run",
    subject="step",
    means="The mean reward rises or falls within a few steps by more than the run's own ups and "
    "downs: a trick was found, or the environment, grader or weights broke. Steady learning is no "
    "jump.",
    source="rewardspy, `detectors/`: CUSUM with drift 0.5, above 5.0; standardised by us: the "
    "distance from the line through the steps before, in standard deviations",
    needs=[over_steps("reward", 12)],
)
def reward_jump(
    run: Steps,
    *,
    drift: Annotated[float, "that is usual, in standard deviations; rewardspy"] = 0.5,
    above: Annotated[float, "standard deviations that add up; rewardspy"] = 5.0,
    least: Annotated[float, "change, as a share of the range of all rewards; ours"] = 0.1,
) -> Iterator[Spot]:
    rows = [(s, r) for s, r in zip(run.numbers, run.rows, strict=True) if "reward" in r]
    means = [row["reward"] for _, row in rows]
    seen: list[tuple[Window, bool]] = []
    befores: dict[int, float] = {}
    sums = {1: 0.0, -1: 0.0}
    since = {1: EARLY, -1: EARLY}  # where the reward is not as expected
    for at in range(EARLY, len(rows)):
        step, now = rows[at]
        noise = sqrt(now["spread"] ** 2 / max(1.0, now["scored"]))
        start = None
        for way in sums:
            if at - since[way] >= RECENT:  # slow: what the line through it all expects
                sums[way], since[way] = 0.0, at
            first = since[way]
            line = Line(means[max(0, first - BEFORE) : first])
            unit = max(line.error(noise, at - first), 1e-3 * now["range"], 1e-12)
            sums[way] += way * (means[at] - line.next(at - first)) / unit - drift
            if sums[way] <= 0:
                sums[way], since[way] = 0.0, at + 1
            elif sums[way] > above:
                change = fmean(means[first : at + 1]) - line.end
                if way * change >= least * now["range"]:
                    start, befores[step] = first, line.end
        first = at if start is None else start
        seen.append((Window(rows[first][0], step, now["reward"]), start is not None))
        if start is not None:
            sums, since = {1: 0.0, -1: 0.0}, {1: at + 1, -1: at + 1}
    for jump in onsets(seen):
        before_it = befores[jump.step]
        word = "rose" if jump.value > before_it else "fell"
        yield Spot(f"the mean reward {word} from {before_it:.3g} to {jump.value:.3g}",
                   step=jump.step, value=jump.value - before_it,
                   query=f"{jump.steps} has:reward")  # fmt: skip
