"""It does not think, though its siblings do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import noted
from ..subject import OneGroup


@check(
    "thought.missing",
    kind="behaviour",
    subject="group",
    means="The policy answers without a thought where its siblings think: it unlearns to think, or "
    "guesses.",
    source="ours",
    needs=[noted("thought", 3)],
)
def missing(
    group: OneGroup,
    *,
    share: Annotated[float, "of the siblings that think; ours"] = 0.6,
    most: Annotated[int, "characters that are no thought; ours"] = 3,
    typical: Annotated[int, "characters that the siblings think at the median; ours"] = 40,
) -> Iterator[Spot]:
    thoughts = {m.id: m.digest["thought"] for m in group.members if "thought" in m.digest}
    full = sorted(chars for chars in thoughts.values() if chars > most)
    if len(full) < share * len(thoughts) or full[len(full) // 2] < typical:
        return
    for id, chars in thoughts.items():
        if chars <= most:
            yield Spot(f"{len(full)} of {len(thoughts)} siblings think, it does not",
                       rollout=id, value=chars)  # fmt: skip
