"""A token that trainer and engine see entirely differently."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Annotated

from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout


@check(
    "gap.token",
    kind="behaviour",
    means="For trainer and engine a token is more than ten thousand times as likely as for the "
    "other: they do not run the same model, or not on the same tokens.",
    source="slime, the veto of `mis.py` at a ratio below 1e-4; both tails: ours",
    needs=[stream("logprob", "train_logprob")],
)
def token(
    one: OneRollout,
    *,
    ratio: Annotated[float, "of the probabilities, either way; slime"] = 1e4,
) -> Iterator[Spot]:
    worst = max(one.gaps, key=lambda gap: abs(gap[2]), default=None)
    if worst is not None and abs(worst[2]) > log(ratio):
        n, i, gap = worst
        yield Spot(f"its ratio of trainer to engine is {exp(max(-700.0, min(700.0, gap))):.3g}",
                   message=n, tokens=(i, i + 1), value=gap)  # fmt: skip
