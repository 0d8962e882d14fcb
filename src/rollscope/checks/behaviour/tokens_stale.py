"""Tokens of weights that are long gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..record.version_future import VERSIONS, versions
from ..subject import OneRollout


@check(
    "tokens.stale",
    version=2,
    kind="behaviour",
    means="The rollout was drawn by weights many steps older than those that learned from it: the "
    "ratio no longer corrects it.",
    source="prime-rl, `max_off_policy_steps`: 8; the trainer's own limit where it is known",
    needs=[VERSIONS],
)
def stale(
    one: OneRollout,
    *,
    most: Annotated[int, "steps, where the trainer tells no limit; prime-rl"] = 8,
) -> Iterator[Spot]:
    oldest, step = versions(one)[0], one.rollout.trained_step
    told = one.algorithm.get("staleness")
    # Some count steps from 1 and versions from 0: there, a difference of one is none.
    limit = most if told is None else told + 1
    if step is not None and step - oldest > limit:
        of = "" if told is None else f"; the trainer's limit is {told} steps"
        yield Spot(f"drawn by version {oldest}, trained on at step {step}{of}",
                   value=step - oldest)  # fmt: skip
