"""What one group said stands in another, too."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..habits import LONG
from ..subject import OneGroup

_SAID = Evidence(
    f"a step, and {LONG} characters that a member said and was free to say otherwise",
    lambda group: (
        group.members[0].row["step"] is not None
        and any(m.digest.get("chars", 0.0) >= LONG and "greedy" not in m.digest
                for m in group.members)
    ),
)  # fmt: skip


@check(
    "rollout.duplicate",
    kind="record",
    subject="group",
    means="A rollout of another group says at length the same at the same step: one was recorded "
    "twice, under two names, or an answer was joined with the wrong task.",
    source="ours; NeMo Gym, `rollout_duplicate_identity`, for those with one name",
    needs=[_SAID],
)
def duplicate(group: OneGroup) -> Iterator[Spot]:
    for member in group.members:
        groups = group.elsewhere.get(member.digest.get("said", -1.0), 0)
        if groups > 1:
            yield Spot(f"{groups} groups of this step have an answer with the same words",
                       rollout=member.id, value=groups)  # fmt: skip
