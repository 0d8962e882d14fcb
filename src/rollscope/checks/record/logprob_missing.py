"""Sampled tokens without the log probability that the others have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout


@check(
    "logprob.missing",
    kind="record",
    means="Some sampled tokens have no log probability though others have: a trainer fills the "
    "hole with zeros, which reads as certainty.",
    source="ours",
    needs=[stream("logprob")],
)
def missing(
    one: OneRollout,
    *,
    edge: Annotated[int, "tokens at the end of a turn that a template may have added; ours"] = 3,
) -> Iterator[Spot]:
    for drawn in one.drawn:
        values, mask = drawn.stream("logprob"), drawn.stream("mask")
        size = len(drawn.tokens)
        if not size or (mask is not None and not any(mask)):
            continue
        if values is None:
            if mask is not None or size > edge:
                yield Spot(f"none of its {size} tokens has a log probability", message=drawn.n)
        elif None in values:
            counted = drawn.trained_on("logprob")
            lost = [i for i, value in counted if value is None]
            if mask is None or len(mask) != size:
                lost = [i for i in lost if i < size - edge]
            if lost:
                yield Spot(
                    f"{len(lost)} of {len(counted)} sampled tokens have no log probability",
                    message=drawn.n, tokens=(lost[0], lost[-1] + 1), value=len(lost),
                )  # fmt: skip
