"""Trainer and engine disagree over the whole rollout."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Annotated

from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout


@check(
    "gap.sequence",
    version=2,
    kind="behaviour",
    means="On average over the rollout, trainer and engine differ by more than importance sampling "
    "may correct: weights, temperature or logprobs are not the same.",
    source="verl and slime keep ratios in [0.5, 2]; NeMo-RL masks above 1.5; on the mean: ours",
    needs=[stream("logprob", "train_logprob")],
)
def sequence(
    one: OneRollout,
    *,
    ratio: Annotated[float, "geometric mean of ratios, each the larger way; NeMo-RL"] = 1.5,
    least: Annotated[int, "tokens that make a mean; ours"] = 16,
) -> Iterator[Spot]:
    gaps = [gap for _, _, gap in one.gaps]
    if len(gaps) < least:
        return
    # By size: what is moved by a token, or stands in another order, has the same mean.
    mean = sum(map(abs, gaps)) / len(gaps)
    if mean > log(ratio):
        yield Spot(f"trainer and engine differ by a factor of {exp(mean):.3g} at the mean of "
                   f"{len(gaps)} tokens", value=mean)  # fmt: skip
