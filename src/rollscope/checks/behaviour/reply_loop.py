"""The policy repeats itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import TEXT
from ..subject import OneRollout


@check(
    "reply.loop",
    kind="behaviour",
    means="The policy says the same thing again and again: it is caught in a loop.",
    source="slime, `has_repetition`",
    needs=[TEXT],
)
def loop(
    one: OneRollout,
    *,
    ratio: Annotated[float, "raw over compressed size; slime"] = 10.0,
    window: Annotated[int, "last characters that are looked at; slime"] = 10_000,
) -> Iterator[Spot]:
    for turn in one.turns:
        if len(turn.text) < window:
            continue
        data = turn.text[-window:].encode("utf-8", "replace")
        found = len(data) / len(zlib.compress(data, 9))
        if found > ratio:
            yield Spot(
                "x", message=turn.n, chars=(len(turn.text) - window, len(turn.text)), value=found
            )
