"""Rewards of a step hardly differ any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import onsets, recent, start


@check(
    "run.variance_collapse",
    kind="run",
    subject="step",
    means="Rewards differ much less than when the run began: there is little left to learn from, "
    "because everything is solved, or fails, or is gamed in one way.",
    source="rewardspy, `detectors/`: alert below 0.05 (it warns below 0.20)",
    needs=[over_steps("spread", 15)],
)
def variance_collapse(
    run: Steps, *, share: Annotated[float, "of the spread at the start; rewardspy"] = 0.05
) -> Iterator[Spot]:
    series = run.series("spread")
    early, _ = start(series)
    if early > 0:
        for now in onsets((w, w.value < share * early) for w in recent(series)):
            yield Spot(
                f"the standard deviation of rewards is {now.value:.3g}; when the run began it was "
                f"{early:.3g}",
                step=now.step, value=now.value / early, query=f"{now.steps} has:reward",
            )  # fmt: skip
