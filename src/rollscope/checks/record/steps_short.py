"""A step has fewer rollouts than all the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps


@check(
    "steps.short",
    kind="record",
    subject="step",
    means="The step has fewer rollouts than nearly all others have: a process stopped in mid-step, "
    "or some were not recorded.",
    source="ours",
    needs=[over_steps("rollouts", 5)],
)
def short(
    run: Steps, *, share: Annotated[float, "of the steps that have the usual number; ours"] = 0.8
) -> Iterator[Spot]:
    sizes = [int(row["rollouts"] + row.get("open", 0)) for row in run.rows]
    (usual, times), *_ = Counter(sizes).most_common(1)
    if times < share * len(sizes):
        return
    for step, size in zip(run.numbers, sizes, strict=True):
        if size < usual:
            yield Spot(f"{size:,} rollouts; {times:,} of {len(sizes):,} steps have {usual:,}",
                       step=step, value=size, query=f"step:{step}")  # fmt: skip
