"""The right answer earns nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import CONCLUDED, REFERENCE, REWARD
from ..subject import OneRollout


@check(
    "answer.unrewarded",
    kind="behaviour",
    means="The policy concludes with the right answer and earns nothing: the grader did not find "
    "it, or demands a form that nobody sees.",
    source="ours",
    needs=[REFERENCE, REWARD, CONCLUDED],
)
def unrewarded(
    one: OneRollout,
    *,
    most: Annotated[float, "reward that is nothing"] = 0.0,
) -> Iterator[Spot]:
    reward, last = one.rollout.reward, one.concluded
    if reward is not None and reward <= most and last is not None and last[1] == one.reference:
        n, given, where = last
        yield Spot(f"it answers “{given[:60]}”, which is right, and its reward is {reward:g}",
                   message=n, chars=where)  # fmt: skip
