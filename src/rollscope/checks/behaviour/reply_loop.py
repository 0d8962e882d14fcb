"""The policy repeats itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import TEXT
from ..subject import OneRollout

_LONGEST = 400
"""Characters of a piece that may repeat at the end."""

_SHORT = 8
"""Characters of a piece that is compared as it is."""


@check(
    "reply.loop",
    version=2,
    kind="behaviour",
    means="The policy says the same thing again and again: it is caught in a loop.",
    source="slime, `has_repetition`; ours for shorter texts: the end repeats one piece",
    needs=[TEXT],
)
def loop(
    one: OneRollout,
    *,
    ratio: Annotated[float, "raw over compressed size; slime"] = 10.0,
    window: Annotated[int, "last characters that are looked at; slime"] = 10_000,
    times: Annotated[int, "repetitions of one piece at the end of a shorter text; ours"] = 6,
    least: Annotated[int, "characters that these repetitions must have; ours"] = 160,
) -> Iterator[Spot]:
    for turn in one.turns:
        text, size = turn.text, len(turn.text)
        piece = _period(text.rstrip(), times, least)
        if piece is not None:
            length, count = piece
            begin = len(text.rstrip()) - length * count
            shown = " ".join(text[begin : begin + min(length, 60)].split())
            yield Spot(
                f"it ends with “{shown}” {count} times over",
                message=turn.n, chars=(begin, size), value=count,
            )  # fmt: skip
        elif size >= window:
            data = text[-window:].encode("utf-8", "replace")
            found = len(data) / len(zlib.compress(data, 9))
            if found > ratio:
                yield Spot(
                    f"its last {window:,} characters are {found:.0f} times as long as compressed",
                    message=turn.n, chars=(size - window, size), value=found,
                )  # fmt: skip


def _period(text: str, times: int, least: int) -> tuple[int, int] | None:
    """The shortest piece that the text ends with so many times, and how often it does. A drawn
    line is no piece: it must have letters."""
    for length in _lengths(text, min(_LONGEST, len(text) // times)):
        if text[-length:] != text[-2 * length : -length]:
            continue
        piece = text[-length:]
        if sum(map(str.isalpha, piece)) < 2:
            continue
        count, end = 2, len(text) - 2 * length
        while end >= length and text[end - length : end] == piece:
            count, end = count + 1, end - length
        if count >= times and count * length >= least:
            return length, count
    return None


def _lengths(text: str, most: int) -> Iterator[int]:
    """How long a piece that repeats at the end may be. The engine that looks for the text's last
    letters is much faster than comparing a piece of each length."""
    yield from range(2, min(_SHORT, most + 1))
    if most >= _SHORT:
        mark, last = text[-_SHORT:], len(text) - _SHORT
        at = last
        while (at := text.rfind(mark, max(0, last - most), at + _SHORT - 1)) >= 0:
            yield last - at
