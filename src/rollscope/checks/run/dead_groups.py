"""Most groups teach nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Share, onsets, shares


@check(
    "run.dead_groups",
    kind="run",
    subject="step",
    means="In most groups all rewards are exactly equal: their advantages are 0, and the step is "
    "learned from a few groups only.",
    source="slime, `zero_std`, for a group; rewardspy for the share: above 50 % of 20 groups",
    needs=[over_steps("groups", 2)],
)
def dead_groups(
    run: Steps,
    *,
    share: Annotated[float, "of the groups; rewardspy"] = 0.50,
    least: Annotated[int, "groups that a share is taken of; rewardspy"] = 20,
) -> Iterator[Spot]:
    series = [
        Share(step, row["dead"], row["groups"])
        for step, row in zip(run.numbers, run.rows, strict=True)
        if row.get("groups")
    ]
    for now in onsets((w, w.value > share) for w in shares(series, least)):
        yield Spot(f"{now.value:.0%} of {now.of:,.0f} groups have the same reward throughout",
                   step=now.step, value=now.value,
                   query=f"{now.steps} flag:group.dead")  # fmt: skip
