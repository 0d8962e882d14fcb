"""Calls of the model that do not fit together with the turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import MODEL_CALLS
from ..modelcalls import NOT_CAPTURED
from ..subject import OneRollout


@check(
    "call.lost",
    kind="record",
    means="A turn refers to a call of the model that was not recorded, or that was recorded twice: "
    "what the turn saw and cost is not known.",
    source="NeMo Gym, `trajectory_capture_mismatch`",
    needs=[MODEL_CALLS],
)
def lost(one: OneRollout) -> Iterator[Spot]:
    for call in one.model_calls:
        if call.span.error is not None and call.span.error.type == NOT_CAPTURED:
            yield Spot(f"call {call.span.id} was not recorded", message=call.span.message)
    ids = Counter(call.span.id for call in one.model_calls if call.span.id is not None)
    for id, count in ids.items():
        if count > 1:
            yield Spot(f"{count} calls have the id {id}", value=count)
