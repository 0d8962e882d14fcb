"""Responses become much longer or shorter."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import onsets, recent, start


@check(
    "run.length_drift",
    kind="run",
    subject="step",
    means="Responses are much longer or shorter than when the run began: length may be rewarded by "
    "itself, or the policy gives up thinking.",
    source="rewardspy, `detectors/`: more than 3 standard deviations; the ratio: ours",
    needs=[over_steps("length", 15)],
)
def length_drift(
    run: Steps,
    *,
    sigmas: Annotated[float, "deviations of the first steps from their mean; rewardspy"] = 3.0,
    times: Annotated[float, "as long, or as short; ours"] = 1.5,
) -> Iterator[Spot]:
    series = run.series("length")
    early, spread = start(series)
    if early <= 0:
        return
    for now in onsets(
        (
            w,
            abs(w.value - early) > sigmas * spread
            and abs(log(max(w.value, 0.1) / early)) > log(times),
        )
        for w in recent(series)
    ):
        word = "longer" if now.value > early else "shorter"
        yield Spot(
            f"responses have become {word}: {now.value:,.0f} tokens, when the run began "
            f"{early:,.0f}",
            step=now.step, value=now.value / early, query=now.steps,
        )  # fmt: skip
