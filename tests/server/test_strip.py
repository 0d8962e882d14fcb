"""A rollout's tokens: the strip over all of them, and windows of them."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

import rollscope
from rollscope.model import Message, Rollout, Tokens
from rollscope.server import params as p
from rollscope.server import reading
from rollscope.server.desk import Desk

COUNTS = (2_500, 0, 1_700)
"""Tokens of the messages."""


def _values(gaps: bool) -> list[list[float | None]]:
    """Streams of multiples of a half, which any format holds exactly and sums in any order."""
    chance = random.Random(7)
    odd = (None, math.nan, math.inf, -math.inf) if gaps else ()
    known = [n / 2 for n in range(-9, 9)]
    made = [[chance.choice((*known * 3, *odd)) for _ in range(count)] for count in COUNTS]
    if gaps:
        made[0][:8] = [None, math.nan, *[None] * 6]  # whole buckets of nothing
    return made


@pytest.mark.parametrize("gaps", [False, True])
def test_a_strip_tells_of_all_tokens_what_is_known(tmp_path: Path, gaps: bool) -> None:
    streams = _values(gaps)
    strip = reading.strip(_desk(tmp_path, streams), p.StripOf(stream="entropy"), "r")
    every = [value for stream in streams for value in stream]
    places = [(n, i) for n, count in enumerate(COUNTS) for i in range(count)]
    known = {i: v for i, v in enumerate(every) if v is not None and math.isfinite(v)}
    assert (strip.tokens, strip.missing) == (len(every), sum(v is None for v in every))
    assert (strip.messages, strip.starts) == ([0, 2], [0, 2_500])
    low, high = min(known.values()), max(known.values())
    assert (strip.lowest, strip.highest) == (low, high)
    assert strip.lowest_at == places[min(i for i, v in known.items() if v == low)]
    assert strip.highest_at == places[min(i for i, v in known.items() if v == high)]
    assert strip.average == sum(known.values()) / len(known)
    assert strip.per == 3
    for at in range(math.ceil(len(every) / strip.per)):
        bucket = [known[i] for i in range(at * 3, at * 3 + 3) if i in known]
        told = (strip.low[at], strip.high[at], strip.mean[at])
        assert told == (
            (min(bucket), max(bucket), sum(bucket) / len(bucket)) if bucket else (None, None, None)
        )
    assert (None in strip.mean) == gaps


def test_windows_of_tokens_have_what_all_of_them_have(tmp_path: Path) -> None:
    desk = _desk(tmp_path, _values(True))
    first, last = reading.tokens(desk, p.TokensOf(), "r").messages
    assert (first.n, last.n) == (0, 2)
    text, ids, ends, entropy = "", [], [], []
    for start in range(0, first.size, 400):
        window, _ = reading.tokens(desk, p.TokensOf(start=start, most=400), "r").messages
        assert window.text_start == len(text)
        assert (window.start, window.size) == (start, first.size)
        text += window.text
        ids += window.ids or []
        ends += window.ends or []
        entropy += window.streams["entropy"]
    assert (ids, ends, entropy) == (first.ids, first.ends, first.streams["entropy"])
    assert text == first.text == "ab " * first.size + "the end"


def _desk(folder: Path, streams: list[list[float | None]]) -> Desk:
    with rollscope.init(project="p", run="r", dir=folder) as run:
        run.log(Rollout(id="r", step=1, messages=[_message(stream) for stream in streams]))
    return Desk(rollscope.open(folder), can_label=False)


def _message(stream: list[float | None]) -> Message:
    if not stream:
        return Message(role="user", content="and then?")
    size = len(stream)
    ends = [3 * (n + 1) for n in range(size)]
    tokens = Tokens(list(range(size)), ends=ends, entropy=stream)
    return Message(role="assistant", content="ab " * size + "the end", sampled=True, tokens=tokens)
