"""The mean reward changes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt
from statistics import median
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import EARLY, Window, onsets


@check(
    "run.reward_jump",
    kind="run",
    subject="step",
    means="The mean reward rises or falls within a few steps by more than the run's own ups and "
    "downs: a trick was found, or the environment, grader or weights broke. Steady learning is no "
    "jump.",
    source="rewardspy, `detectors/`: CUSUM with drift 0.5, above 5.0; standardised by us: the "
    "changes from step to step, in units of their usual size",
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
    seen: list[tuple[Window, bool]] = []
    changes: list[float] = []
    sums = {1: 0.0, -1: 0.0}
    since = {1: 0, -1: 0}
    for at in range(1, len(rows)):
        (_, before), (step, now) = rows[at - 1], rows[at]
        change = now["reward"] - before["reward"]
        if len(changes) < EARLY:
            changes.append(change)
            continue
        usual = 1.4826 * median(abs(c) for c in changes)
        unit = max(usual, sqrt(_noise(before) + _noise(now)), 1e-3 * now["range"], 1e-12)
        jumps = []
        for way in sums:
            sums[way] = max(0.0, sums[way] + way * change / unit - drift)
            if not sums[way]:
                since[way] = at
            far = abs(now["reward"] - rows[since[way]][1]["reward"])
            if sums[way] > above and far >= least * now["range"]:
                jumps.append(since[way])
        start = rows[min(jumps, default=at)][0]
        seen.append((Window(start, step, now["reward"]), bool(jumps)))
        if jumps:
            sums, since = {1: 0.0, -1: 0.0}, {1: at, -1: at}
        else:
            changes.append(change)
    means = {step: row["reward"] for step, row in rows}
    for jump in onsets(seen):
        before_it = means[jump.first]
        word = "rose" if jump.value > before_it else "fell"
        yield Spot(f"the mean reward {word} from {before_it:.3g} to {jump.value:.3g}",
                   step=jump.step, value=jump.value - before_it,
                   query=f"{jump.steps} has:reward")  # fmt: skip


def _noise(row: Mapping[str, float]) -> float:
    """Of a mean of so many rewards, squared."""
    return row["spread"] ** 2 / max(1.0, row["scored"])
