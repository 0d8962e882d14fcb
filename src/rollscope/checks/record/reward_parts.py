"""A reward that its parts do not make."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, isfinite

from ..check import Evidence, Spot, check
from ..subject import Member, OneGroup

_USUAL = 0.98
"""Share of rewards that follow a rule; ours."""

_RULE = Evidence(
    "parts, and weights that stand beside them or in the trainer's settings; or fifty rewards, of "
    "which nearly all are the sum or the mean of their parts",
    lambda group: any(_made(group, member) is not None for member in group.members),
)


def _made(group: OneGroup, member: Member) -> tuple[str, float] | None:
    """What the parts of a reward make, and how; None: that is not known."""
    values = {n: v for n, v in (member.row["rewards"] or {}).items() if v is not None}
    if not values or not isfinite(sum(values.values())):
        return None
    if "weighed" in member.digest:
        return "weighted sum", member.digest["weighed"]
    weights = group.algorithm.get("reward_weights") or {}
    if group.algorithm.get("rewards") == "sum" and values.keys() <= weights.keys():
        return "weighted sum", sum(weights[name] * value for name, value in values.items())
    for rule, size in (("sum", 1), ("mean", len(values))):
        if group.about.get("parts", 0.0) >= 50 and group.about.get(f"parts_{rule}", 0.0) >= _USUAL:
            return rule, sum(values.values()) / size
    return None


@check(
    "reward.parts",
    version=3,
    kind="record",
    subject="group",
    means="The reward is not what its parts make, by its weights or in the rest of the run: what "
    "was trained on is not what the parts say.",
    source="ours; weights as verifiers and TRL have them, else the run's own rule",
    needs=[_RULE],
)
def parts(group: OneGroup) -> Iterator[Spot]:
    for member in group.members:
        found = _made(group, member)
        if found is None or member.reward is None or not isfinite(member.reward):
            continue
        how, made = found
        if not isclose(made, member.reward, rel_tol=1e-3, abs_tol=1e-3):
            yield Spot(f"its reward is {member.reward:g}, the {how} of its parts {made:g}",
                       rollout=member.id, value=member.reward - made)  # fmt: skip
