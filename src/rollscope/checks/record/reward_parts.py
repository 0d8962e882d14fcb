"""A reward that its parts do not make."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, isfinite

from ..check import Evidence, Spot, check
from ..subject import OneGroup

_RULE = Evidence(
    "fifty rewards with parts, which nearly all are their sum or their mean",
    lambda group: group.about.get("parts", 0.0) >= 50 and _rule(group) is not None,
)
_USUAL = 0.98
"""Share of rewards that follow a rule; ours."""


def _rule(group: OneGroup) -> str | None:
    """What parts make in the run; None: neither, or in too few cases to tell."""
    return next((r for r in ("sum", "mean") if group.about.get(f"parts_{r}", 0.0) >= _USUAL), None)


@check(
    "reward.parts",
    version=2,
    kind="record",
    subject="group",
    means="The reward is not what its parts make in the rest of the run: what was trained on is "
    "not what the parts say.",
    source="ours; the rule is the run's own",
    needs=[_RULE],
)
def parts(group: OneGroup) -> Iterator[Spot]:
    rule = _rule(group)
    for member in group.members if rule else ():
        values = [value for value in (member.row["rewards"] or {}).values() if value is not None]
        if member.reward is None or not values or not isfinite(sum(values) + member.reward):
            continue
        made = sum(values) / (len(values) if rule == "mean" else 1)
        if not isclose(made, member.reward, rel_tol=1e-3, abs_tol=1e-3):
            yield Spot(f"its reward is {member.reward:g}, the {rule} of its parts {made:g}",
                       rollout=member.id, value=member.reward - made)  # fmt: skip
