"""The grader failed, and the policy paid."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import REWARD
from ..subject import OneRollout

_NOT_ITS_FAULT = ("grader", "infrastructure")

_PART = re.compile(
    r"(docker|sandbox|grader|judge|verifier|infra\w*|scorer)_?(error|fail\w*|timeout|crash\w*)"
    r"|could_not_(run|grade|score|verify)\w*|(grading|scoring)_(error|failed)",
    re.I,
)
"""Parts of the reward that count failures of the machine."""

_SAID = re.compile(
    r"\b(rate limit|quota) (exceeded|reached)|HTTP/?\s?5\d\d\b"
    r"|(judge|grader|scorer|verifier) (error|failed|timed out|crashed|returned no)"
    r"|(response|answer|output|submission)[^.]{0,60} (is|appears to be|was|seems to be)"
    r" (missing|empty|cut off|not provided)[^.]{0,40}(from|in) (the|your|this) prompt",
    re.I,
)
"""What a judge says when it had nothing to judge, or broke."""

_SAW_NOTHING = re.compile(
    r"\bno (?:response|answer|output|submission) (?:was|is|has been) (?:provided|given|submitted)"
    r"|\b(?:response|answer|output|submission) (?:is|was|appears to be|seems to be) "
    r"(?:completely |entirely )?(?:empty|missing|blank)\b",
    re.I,
)
"""What a judge says when it was handed nothing."""

_SOMETHING = 40
"""Characters of the policy's last message that are no nothing."""


@check(
    "reward.grader",
    version=2,
    kind="record",
    means="The grader or the machine failed and a reward was given all the same: it says nothing "
    "about the policy.",
    source="miles and rllm split failures of the machine from the policy's; ours",
    needs=[REWARD],
)
def grader(one: OneRollout) -> Iterator[Spot]:
    rollout = one.rollout
    error = rollout.error
    if (
        error is not None
        and error.kind in _NOT_ITS_FAULT
        and rollout.fate not in ("dropped", "failed")
    ):
        what = error.type or error.kind
        yield Spot(f"{error.kind} error ({what}), and yet the reward {rollout.reward:g}")
    for name, value in rollout.rewards.items():
        if value is not None and value > 0 and _PART.search(name):
            yield Spot(f"{name} is {value:g}, and yet the reward {rollout.reward:g}", value=value)
    for name, text in rollout.reward_texts.items():
        found = _SAID.search(text)
        if found is None and one.turns and len(one.turns[-1].text.strip()) >= _SOMETHING:
            found = _SAW_NOTHING.search(text)
        if found is not None:
            yield Spot(f"{name} is {_of(rollout.rewards.get(name))}, but its judge said: "
                       f"“{found[0]}”")  # fmt: skip


def _of(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
