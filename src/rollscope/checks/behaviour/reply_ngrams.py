"""The same words in the same order, over and over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Evidence, Spot, check
from ..subject import OneRollout

LEAST = 100
"""Words of a message, without which a share of them says little; ours."""

_LONG = Evidence(
    f"a message of the policy with {LEAST} words",
    # So many words have so many letters and blanks: most short texts need not be cut into words.
    lambda one: any(
        len(turn.text) >= 2 * LEAST - 1 and len(turn.text.split(None, LEAST)) >= LEAST
        for turn in one.turns
    ),
)


@check(
    "reply.ngrams",
    kind="behaviour",
    means="Nearly all of what the policy says are runs of words that it has said before: it goes "
    "round in circles, though its last words may be an answer.",
    source="1 - distinct/all n-grams, as in open-r1's `rewards.py` and arXiv 2502.03373; length "
    "and share: tuned, so that lists of similar moves stay clear",
    needs=[_LONG],
)
def ngrams(
    one: OneRollout,
    *,
    share: Annotated[float, "of the runs that were there before; tuned"] = 0.9,
    words: Annotated[int, "in a run; tuned"] = 20,
    window: Annotated[int, "last characters that are looked at; slime"] = 10_000,
) -> Iterator[Spot]:
    for turn in one.turns:
        said = turn.text[-window:].split()
        runs = len(said) - words + 1
        # There are at least as many runs as different words, less those of the first run.
        if len(said) < LEAST or len(set(said)) - words > (1 - share) * runs:
            continue
        found = 1 - len(set(zip(*(said[n:] for n in range(words)), strict=False))) / runs
        if found > share:
            yield Spot(
                f"{found:.0%} of its runs of {words} words were there before",
                message=turn.n, chars=(max(0, len(turn.text) - window), len(turn.text)),
                value=found,
            )  # fmt: skip
