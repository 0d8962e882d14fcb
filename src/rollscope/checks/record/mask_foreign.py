"""The mask covers what the policy did not write."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import conversation
from ..check import Evidence, Spot, check
from ..subject import OneRollout

_MASKED = Evidence(
    "the mask of a message that the policy did not write",
    lambda one: any(
        m.tokens is not None and m.tokens.mask is not None and not conversation.by_policy(m)
        for m in one.messages
    ),
)


@check(
    "mask.foreign",
    kind="record",
    means="Tokens of a prompt or a tool count in the loss: the policy learns to write what it "
    "should only read.",
    source="ours",
    needs=[_MASKED],
)
def foreign(one: OneRollout) -> Iterator[Spot]:
    for n, message in enumerate(one.messages):
        tokens = message.tokens
        if tokens is None or tokens.mask is None or conversation.by_policy(message):
            continue
        covered = [i for i, counted in enumerate(tokens.mask) if counted]
        if covered:
            yield Spot(
                f"{len(covered)} tokens of a message with role {message.role} count in the loss",
                message=n, tokens=(covered[0], covered[-1] + 1), value=len(covered),
            )  # fmt: skip
