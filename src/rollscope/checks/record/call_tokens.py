"""Counts of tokens that are missing, zero, or do not add up."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..modelcalls import counts
from ..subject import OneRollout

_COUNTED = Evidence(
    "calls of the model, and tokens of one of them or of all",
    lambda one: (
        bool(one.model_calls)
        and (
            any((call.prompt, call.answer) != (None, None) for call in one.model_calls)
            or None not in counts(one.rollout.meta.get("usage"))
        )
    ),
)


@check(
    "call.tokens",
    kind="record",
    means="A call of the model answered with no token, or was not counted, or the calls do not add "
    "up to what the rollout says that it cost.",
    source="NeMo Gym, `model_call_zero_completion_tokens`, `model_call_missing_token_counts`, "
    "`rollout_token_count_mismatch`",
    needs=[_COUNTED],
)
def tokens(one: OneRollout) -> Iterator[Spot]:
    answered = [call for call in one.model_calls if not call.is_failed]
    for call in answered:
        name = call.span.id or call.model
        if call.prompt is None or call.answer is None:
            yield Spot(f"the tokens of call {name} were not counted", message=call.span.message)
        elif call.answer == 0:
            yield Spot(f"call {name} answered with no token", message=call.span.message, value=0)
    told = counts(one.rollout.meta.get("usage"))
    made = (sum(call.prompt or 0 for call in answered), sum(call.answer or 0 for call in answered))
    if None not in told and told != made:
        yield Spot(f"its calls had {made[0]:,} tokens in and {made[1]:,} out; the rollout says "
                   f"{told[0]:,} and {told[1]:,}")  # fmt: skip
