"""A long run of near-certain tokens."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Annotated

from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout


@check(
    "reply.certain",
    kind="behaviour",
    means="The policy was certain of thousands of tokens in a row: that is how loops look before "
    "they are seen in the text.",
    source="prime-rl's filter, after MiniMax-M1 (arXiv 2506.13585, 3.2)",
    needs=[stream("logprob")],
)
def certain(
    one: OneRollout,
    *,
    probability: Annotated[float, "above which a token is certain; prime-rl"] = 0.99,
    least: Annotated[int, "tokens in a row; prime-rl"] = 3000,
) -> Iterator[Spot]:
    sure = log(probability)
    for drawn, values in one.streams("logprob"):
        if len(values) < least:
            continue
        begin = 0
        for i, value in enumerate([*values, None]):
            if value is not None and value > sure:
                continue
            if i - begin >= least:
                yield Spot(
                    f"{i - begin:,} tokens in a row were drawn with more than {exp(sure):.0%}",
                    message=drawn.n, tokens=(begin, i), value=i - begin,
                )  # fmt: skip
            begin = i + 1
