"""More rollouts end in errors of one kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Share, risen, shares


@check(
    "run.errors",
    kind="run",
    subject="step",
    means="Errors of one kind have become many: of the machine, they spoil what is learned; of the "
    "policy, it has unlearned something.",
    source="TRL, `tools/failure_frequency`; by kind: miles #2802, rllm #710; the bounds: ours",
    needs=[over_steps("rollouts", 2)],
)
def errors(
    run: Steps,
    *,
    share: Annotated[float, "of the rollouts; ours"] = 0.10,
    sigmas: Annotated[float, "above the share at the start; ours"] = 4.0,
    least: Annotated[int, "rollouts that a share is taken of; ours"] = 30,
) -> Iterator[Spot]:
    for name in sorted({n for row in run.rows for n in row if n.startswith("error:")}):
        series = [
            Share(step, row.get(name, 0.0), row["rollouts"])
            for step, row in zip(run.numbers, run.rows, strict=True)
        ]
        for now, early in risen(list(shares(series, least)), share, sigmas):
            kind = name[6:]
            said = f"errors of kind {kind}" if kind else "errors of no known kind"
            yield Spot(
                f"{said} in {now.value:.0%} of rollouts; when the run began in {early:.0%}",
                step=now.step, value=now.value,
                query=f"{now.steps} has:error error_kind:{kind or 'none'}",
            )  # fmt: skip
