"""One part makes nearly all of the reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Window, onsets


@check(
    "run.part_dominates",
    kind="run",
    subject="step",
    means="One part has come to make nearly all of the reward: the policy learns that part only, "
    "and others may be worn out or gamed. A run whose reward was so from the start is left alone.",
    source="rewardspy, `detectors/`: above 0.90 of the sum of absolute means, 30 records",
    needs=[over_steps("parts", 2)],
)
def part_dominates(
    run: Steps,
    *,
    share: Annotated[float, "of the sum of all parts; rewardspy"] = 0.90,
    least: Annotated[int, "rollouts that a mean is taken over; rewardspy"] = 30,
) -> Iterator[Spot]:
    rows = [(s, r) for s, r in zip(run.numbers, run.rows, strict=True) if "parts" in r]
    names = sorted({n for _, r in rows for n in r if n.startswith("part:")})
    for name in names if len(names) > 1 else ():
        seen: list[tuple[Window, bool]] = []
        for at in range(len(rows)):
            first, counted = at, rows[at][1]["parts"]
            while first > 0 and counted < least:
                first -= 1
                counted += rows[first][1]["parts"]
            if counted < least:
                continue
            means = {n: abs(_mean([r for _, r in rows[first : at + 1]], n)) for n in names}
            if whole := sum(means.values()):
                window = Window(rows[first][0], rows[at][0], means[name] / whole)
                seen.append((window, window.value > share))
        if seen and not seen[0][1]:
            for now in onsets(seen):
                yield Spot(
                    f"{name[5:]} makes {now.value:.0%} of the reward; when the run began it made "
                    f"{seen[0][0].value:.0%}",
                    step=now.step, value=now.value, query=f"{now.steps} has:reward",
                )  # fmt: skip


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float:
    total = weight = 0.0
    for row in rows:
        if name in row:
            total += row[name] * row["parts"]
            weight += row["parts"]
    return total / weight if weight else 0.0
