"""Log probabilities that no sampling gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Annotated

from ..check import Evidence, Spot, check
from ..subject import OneRollout

STREAMS = ("logprob", "train_logprob", "ref_logprob")

_ANY = Evidence(
    "a stream of log probabilities",
    lambda one: any(d.stream(name) is not None for d in one.drawn for name in STREAMS),
)


@check(
    "logprob.odd",
    kind="record",
    means="Log probabilities are positive, all zero, all the same or no numbers: every ratio and "
    "loss made of them is wrong.",
    source="ours",
    needs=[_ANY],
)
def odd(
    one: OneRollout,
    *,
    least: Annotated[int, "tokens of which all are alike; ours"] = 16,
    above: Annotated[float, "what rounding may leave above zero; ours"] = 1e-3,
) -> Iterator[Spot]:
    is_greedy = one.rollout.sampling.get("temperature") == 0
    for name in STREAMS:
        every: list[float] = []
        for drawn, values in one.streams(name):
            known = [value for value in values if value is not None]
            wrong = _impossible(known, above)
            if wrong is not None:
                yield Spot(f"{name}: {wrong}", message=drawn.n)
                break
            every += known
        else:
            if len(every) >= least and min(every) == max(every):
                if every[0] != 0.0:
                    yield Spot(f"{name} is {every[0]:g} for all {len(every)} tokens")
                elif not is_greedy:
                    yield Spot(f"{name} is 0 for all {len(every)} tokens")


def _impossible(values: Sequence[float], above: float) -> str | None:
    if not values:
        return None
    if not isfinite(sum(values)):
        lost = [v for v in values if v != v or v == float("inf")]
        if lost:
            return f"{len(lost)} of {len(values)} are no numbers"
    highest = max(values)
    if highest > above:
        count = sum(value > above for value in values)
        return f"{count} of {len(values)} are above 0, up to {highest:g}"
    return None
