"""Rollouts are older than they may be when they are learned from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Share, onsets, shares


@check(
    "run.staleness",
    kind="run",
    subject="step",
    means="Most rollouts were asked for many steps before they are learned from: the trainer "
    "cannot keep up, and the ratio no longer corrects it.",
    source="prime-rl, `max_off_policy_steps`: 8; the trainer's own limit where it is known",
    needs=[over_steps("stale_of", 1)],
)
def staleness(
    run: Steps,
    *,
    most: Annotated[int, "steps, where the trainer tells no limit; prime-rl"] = 8,
    share: Annotated[float, "of the rollouts; ours"] = 0.5,
    least: Annotated[int, "rollouts that a share is taken of; ours"] = 8,
) -> Iterator[Spot]:
    limit = run.algorithm.get("staleness", most)
    series = [
        Share(step, sum(n for name, n in row.items() if _is_over(name, limit)), row["stale_of"])
        for step, row in zip(run.numbers, run.rows, strict=True)
        if row.get("stale_of")
    ]
    for now in onsets((w, w.value > share) for w in shares(series, least, 1)):
        yield Spot(f"{now.value:.0%} of rollouts are learned from more than {limit} steps late",
                   step=now.step, value=now.value,
                   query=f"{now.steps} staleness:>{limit}")  # fmt: skip


def _is_over(name: str, limit: int) -> bool:
    return name.startswith("stale:") and int(name[6:]) > limit
