"""The mask leaves out everything that the policy wrote."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout

_LEFT_OUT = ("masked", "dropped", "rejected", "failed")


@check(
    "mask.empty",
    kind="record",
    means="Nothing of the rollout counts in the loss, though its fate does not say so: it is "
    "generated, scored and lost.",
    source="ours",
    needs=[stream("mask")],
)
def empty(one: OneRollout) -> Iterator[Spot]:
    if one.rollout.fate in _LEFT_OUT:
        return
    masks = [values for _, values in one.streams("mask")]
    tokens = sum(map(len, masks))
    if tokens and not any(any(mask) for mask in masks):
        fate = f"its fate is {one.rollout.fate!r}" if one.rollout.fate else "no fate says why"
        yield Spot(f"the mask covers none of {tokens} tokens of the policy; {fate}", value=0.0)
