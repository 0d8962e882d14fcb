"""Trainer and engine disagree over a whole step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import Window, onsets


@check(
    "run.gap",
    kind="run",
    subject="step",
    means="The log probabilities of trainer and engine are too far apart for importance sampling "
    "to be trusted: weights were not updated, or the two compute or sample differently.",
    source="verl, `docs/algo/rollout_corr.md`: mean weight outside [0.5, 2], effective sample size "
    "below 0.3, |KL| above 0.1, chi-squared above 1; NeMo-RL, `docs/guides/grpo.md`: mean of "
    "exp|difference| above 1.05",
    needs=[over_steps("gap_weight", 1)],
)
def gap(
    run: Steps,
    *,
    weight: Annotated[float, "mean ratio, either way; verl"] = 2.0,
    sample: Annotated[float, "effective sample size, as a share; verl"] = 0.3,
    kl: Annotated[float, "mean of the difference; verl"] = 0.1,
    chi2: Annotated[float, "mean squared ratio less 1; verl"] = 1.0,
    error: Annotated[float, "mean of exp|difference|; NeMo-RL"] = 1.05,
) -> Iterator[Spot]:
    seen: list[tuple[Window, bool]] = []
    says: dict[int, list[str]] = {}
    for step, row in zip(run.numbers, run.rows, strict=True):
        if "gap_weight" not in row:
            continue
        mean, square = row["gap_weight"], row["gap_square"]
        effective = mean * mean / square if square else 1.0
        wrong = [
            f"{name} {value:.3g}"
            for name, value, is_wrong in (
                ("mean ratio", mean, not 1 / weight <= mean <= weight),
                ("effective sample size", effective, effective < sample),
                ("KL", row["gap_kl"], abs(row["gap_kl"]) > kl),
                ("chi-squared", square - 1, square - 1 > chi2),
                ("mean exp|difference|", row["gap_error"], row["gap_error"] > error),
            )
            if is_wrong
        ]
        says[step] = wrong
        seen.append((Window(step, step, row["gap_error"]), bool(wrong)))
    for now in onsets(seen):
        yield Spot("trainer and engine part: " + ", ".join(says[now.step]), step=now.step,
                   value=now.value, query=f"{now.steps}")  # fmt: skip
