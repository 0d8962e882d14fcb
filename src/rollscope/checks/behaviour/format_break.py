"""It breaks the form that its siblings keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..digest import FORMS
from ..evidence import noted
from ..subject import OneGroup


@check(
    "format.break",
    version=3,
    kind="behaviour",
    subject="group",
    means="The answer lacks the form that all its siblings have: a parser may not find it, and a "
    "right answer earns nothing.",
    source="ours",
    needs=[noted("forms", 4)],
)
def broken(
    group: OneGroup,
    *,
    share: Annotated[float, "of the other siblings that have the form; ours"] = 0.9,
) -> Iterator[Spot]:
    known = {m.id: int(m.digest["forms"]) for m in group.members if "forms" in m.digest}
    for n, form in enumerate(FORMS):
        without = [id for id, forms in known.items() if not forms >> n & 1]
        if without and len(known) - len(without) >= share * (len(known) - 1):
            for id in without:
                yield Spot(f"it lacks {form}, which {len(known) - len(without)} of {len(known)} "
                           "siblings have", rollout=id)  # fmt: skip
