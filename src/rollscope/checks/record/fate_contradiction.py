"""A fate that other facts contradict."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import FATE
from ..subject import OneRollout


@check(
    "fate.contradiction",
    kind="record",
    means="The fate of the rollout and what is known of its training contradict each other: counts "
    "of trained and dropped rollouts are wrong.",
    source="ours",
    needs=[FATE],
)
def contradiction(one: OneRollout) -> Iterator[Spot]:
    rollout = one.rollout
    fate, step = rollout.fate, rollout.trained_step
    if fate in ("dropped", "rejected", "failed") and step is not None:
        yield Spot(f"its fate is {fate!r}, but step {step} trained on it")
    if step is not None and rollout.step is not None and step < rollout.step:
        yield Spot(f"asked for at step {rollout.step}, trained on before that, at step {step}")
    if (
        fate == "trained"
        and rollout.advantage is not None
        and rollout.advantage != rollout.advantage
    ):
        yield Spot("trained on with an advantage that is no number")
    if fate == "scored" and rollout.reward is None and not rollout.rewards:
        yield Spot("its fate is 'scored', but it has no reward")
    if one.is_open and fate == "trained":
        yield Spot("it is still going on, but its fate is 'trained'")
