"""Tokens of weights that are long gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..record.version_future import VERSIONS, versions
from ..subject import OneRollout


@check(
    "tokens.stale",
    kind="behaviour",
    means="The rollout was drawn by weights many steps older than those that learned from it: the "
    "ratio no longer corrects it.",
    source="prime-rl, `max_off_policy_steps`",
    needs=[VERSIONS],
)
def stale(
    one: OneRollout,
    *,
    most: Annotated[int, "steps between drawing and training; prime-rl"] = 8,
) -> Iterator[Spot]:
    oldest, step = versions(one)[0], one.rollout.trained_step
    if step is not None and step - oldest > most:
        yield Spot(f"drawn by version {oldest}, trained on at step {step}", value=step - oldest)
