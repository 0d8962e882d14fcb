"""A sibling says exactly the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import noted
from ..subject import OneGroup


@check(
    "reply.copy",
    version=2,
    kind="behaviour",
    subject="group",
    means="Two siblings say word for word the same at length, but for blanks, quotes and capitals: "
    "the policy has lost its variety, or one answer was recorded twice.",
    source="ours",
    needs=[noted("said")],
)
def copy(
    group: OneGroup,
    *,
    least: Annotated[int, "characters that are no chance; ours"] = 400,
) -> Iterator[Spot]:
    said = {
        m.id: m.digest["said"]
        for m in group.members
        if m.digest.get("chars", 0.0) >= least and "said" in m.digest
    }
    counts = Counter(said.values())
    for member in group.members:
        count = counts[said[member.id]] if member.id in said else 0
        if count > 1:
            text = f"{count} of {len(group.members)} siblings say the same"
            yield Spot(f"{text}, {member.digest['chars']:,.0f} characters long",
                       rollout=member.id, value=count)  # fmt: skip
