"""A step has fewer rollouts than all the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..evidence import over_steps
from ..subject import Steps

SHARE = 0.8
"""Of the steps: so many must have the usual number; ours."""


def _usual(run: Steps) -> tuple[int, int] | None:
    """How many rollouts nearly all steps have, and how many have them; None: it varies."""
    (usual, times), *_ = Counter(_sizes(run)).most_common(1)
    return (usual, times) if times >= SHARE * len(run.rows) else None


def _sizes(run: Steps) -> list[int]:
    return [int(row["rollouts"] + row.get("open", 0)) for row in run.rows]


_STEADY = Evidence(
    "steps nearly all of which have as many rollouts", lambda run: _usual(run) is not None
)


@check(
    "steps.short",
    version=2,
    kind="record",
    subject="step",
    means="The step has fewer rollouts than nearly all others have: a process stopped in mid-step, "
    "or some were not recorded.",
    source="ours",
    needs=[over_steps("rollouts", 5), _STEADY],
)
def short(run: Steps) -> Iterator[Spot]:
    usual, times = _usual(run) or (0, 0)
    for step, size in zip(run.numbers, _sizes(run), strict=True):
        if size < usual:
            yield Spot(f"{size:,} rollouts; {times:,} of {len(run.rows):,} steps have {usual:,}",
                       step=step, value=size, query=f"step:{step}")  # fmt: skip
