"""Steps between others were not recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps


@check(
    "steps.hole",
    kind="record",
    subject="step",
    means="Steps between two others have no rollouts, where nearly all others have: they were lost "
    "or not recorded.",
    source="ours",
    needs=[over_steps("rollouts", 5)],
)
def hole(
    run: Steps, *, share: Annotated[float, "of the distances that are the usual one; ours"] = 0.8
) -> Iterator[Spot]:
    pairs = list(zip(run.numbers, run.numbers[1:], strict=False))
    (usual, times), *_ = Counter(b - a for a, b in pairs).most_common(1)
    if times < share * len(pairs):
        return
    for a, b in pairs:
        missing = (b - a) // usual - 1
        if missing > 0:
            said = f"step {a + usual} is" if missing == 1 else f"{missing} steps are"
            yield Spot(f"{said} missing between steps {a} and {b}", step=b, value=missing,
                       query=f"step:{a},{b}")  # fmt: skip
