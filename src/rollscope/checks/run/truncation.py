"""More rollouts are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Share, risen, shares


@check(
    "run.truncation",
    kind="run",
    subject="step",
    means="Many more rollouts than at the start are cut off by the limit of length: their rewards "
    "say little about what they were going to answer.",
    source="DAPO (overlong responses); the bounds: ours",
    needs=[over_steps("truncated_of", 2)],
)
def truncation(
    run: Steps,
    *,
    share: Annotated[float, "of the rollouts; ours"] = 0.20,
    sigmas: Annotated[float, "above the share at the start; ours"] = 4.0,
    least: Annotated[int, "rollouts that a share is taken of; ours"] = 30,
) -> Iterator[Spot]:
    series = [
        Share(step, row["truncated"], row["truncated_of"])
        for step, row in zip(run.numbers, run.rows, strict=True)
        if row.get("truncated_of")
    ]
    for now, early in risen(list(shares(series, least)), share, sigmas):
        yield Spot(
            f"{now.value:.0%} of rollouts are cut off; when the run began {early:.0%}",
            step=now.step, value=now.value, query=f"{now.steps} truncated:true",
        )  # fmt: skip
