"""The last call of the model failed."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import MODEL_CALLS
from ..modelcalls import NOT_CAPTURED
from ..subject import OneRollout


@check(
    "call.failed",
    kind="record",
    means="The rollout ended because a call of the model failed, or a turn rests on one that did: "
    "its reward says nothing about the policy. A call that was tried again with success is "
    "no finding.",
    source="NeMo Gym, `rollout_ended_on_failed_model_call` and `model_call_failed`",
    needs=[MODEL_CALLS],
)
def failed(one: OneRollout) -> Iterator[Spot]:
    last = {call.model: call for call in one.model_calls}
    for call in one.model_calls:
        error = call.span.error
        if error is None or error.type == NOT_CAPTURED:
            continue
        is_last = last[call.model] is call
        if is_last or call.span.message is not None:
            which = "the last call" if is_last else "a call that made a message"
            said = ": ".join(filter(None, (error.type, error.text))) or "it does not say why"
            of = sum(1 for other in one.model_calls if other.model == call.model)
            yield Spot(f"{which} of {call.model}, of {of}, failed: {said[:120]}",
                       message=call.span.message)  # fmt: skip
