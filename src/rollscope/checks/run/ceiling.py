"""Nearly all rewards are the greatest there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Share, onsets, shares


@check(
    "run.ceiling",
    kind="run",
    subject="step",
    means="Nearly all rollouts get the greatest reward of the run: the tasks are too easy by now, "
    "or the grader lets everything pass.",
    source="rewardspy, `detectors/`: above 0.80 of 50 records",
    needs=[over_steps("top", 2)],
)
def ceiling(
    run: Steps,
    *,
    share: Annotated[float, "of the rewards that are at the top; rewardspy"] = 0.80,
    least: Annotated[int, "rewards that a share is taken of; rewardspy"] = 50,
) -> Iterator[Spot]:
    series = [
        Share(step, row["top"], row["scored"])
        for step, row in zip(run.numbers, run.rows, strict=True)
        if "top" in row
    ]
    for now in onsets((w, w.value > share) for w in shares(series, least)):
        yield Spot(f"{now.value:.0%} of {now.of:,.0f} rewards are at the top of the run's range",
                   step=now.step, value=now.value, query=f"{now.steps} has:reward")  # fmt: skip
