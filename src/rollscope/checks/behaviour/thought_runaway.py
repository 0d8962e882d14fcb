"""It thinks until it is cut off."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..subject import OneRollout
from ..thoughts import thought

LENGTH = ("length", "max_tokens", "max_output_tokens", "truncated", "max_length")
"""Words of engines for a text that was cut off."""

_THOUGHTS = Evidence(
    "thoughts that are marked as such",
    lambda one: any(thought(turn.message, turn.text) is not None for turn in one.turns),
)


@check(
    "thought.runaway",
    version=2,
    kind="behaviour",
    means="The policy thinks to the end and never answers: it earns nothing, and costs the most.",
    source="NeMo Gym, `model_call_runaway_generation`",
    needs=[_THOUGHTS],
)
def runaway(one: OneRollout) -> Iterator[Spot]:
    if one.is_open:
        return
    turn = one.turns[-1]
    found = thought(turn.message, turn.text)
    if found is None or found.is_closed or "</answer>" in turn.text:  # its end may be misspelt
        return
    if found.chars:
        stop = turn.message.stop_reason or one.rollout.stop_reason
        cut = " and was cut off" if one.rollout.truncated or stop in LENGTH else ""
        yield Spot(f"{found.chars:,} characters of thought{cut}, and no answer",
                   message=turn.n, value=found.chars)  # fmt: skip
