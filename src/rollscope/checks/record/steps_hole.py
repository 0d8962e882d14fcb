"""Steps between others were not recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ..check import Evidence, Spot, check
from ..evidence import over_steps
from ..subject import Steps

SHARE = 0.8
"""Of the distances between steps: so many must be the usual one; ours."""


def _usual(run: Steps) -> int | None:
    """How far apart nearly all steps are; None: it varies."""
    apart = [b - a for a, b in pairwise(run.numbers)]
    (usual, times), *_ = Counter(apart).most_common(1)
    return usual if times >= SHARE * len(apart) else None


_REGULAR = Evidence("steps nearly all of which are as far apart",
                    lambda run: _usual(run) is not None)  # fmt: skip


@check(
    "steps.hole",
    version=2,
    kind="record",
    subject="step",
    means="Steps between two others have no rollouts, where nearly all others have: they were lost "
    "or not recorded.",
    source="ours",
    needs=[over_steps("rollouts", 5), _REGULAR],
)
def hole(run: Steps) -> Iterator[Spot]:
    usual = _usual(run)
    for a, b in pairwise(run.numbers):
        missing = (b - a) // usual - 1 if usual is not None else 0
        if missing > 0:
            said = f"step {a + (usual or 0)} is" if missing == 1 else f"{missing} steps are"
            yield Spot(f"{said} missing between steps {a} and {b}", step=b, value=missing,
                       query=f"step:{a},{b}")  # fmt: skip
