"""A prompt that is not its group's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import noted
from ..rules import usually
from ..subject import OneGroup


@check(
    "group.prompt",
    version=2,
    kind="record",
    subject="group",
    means="A rollout has another prompt than its siblings: it stands in the wrong group, and is "
    "compared with answers to another question.",
    source="ours",
    needs=[noted("prompt", 3), usually("prompts", "have one prompt each")],
)
def prompt(
    group: OneGroup,
    *,
    most: Annotated[float, "share of the group that has the other prompt; ours"] = 0.34,
) -> Iterator[Spot]:
    prompts = {m.id: m.digest["prompt"] for m in group.members if "prompt" in m.digest}
    (common, count), *others = Counter(prompts.values()).most_common()
    if len(prompts) - count > most * len(prompts):
        return
    for id, mine in prompts.items() if others else ():
        if mine != common:
            yield Spot(f"its prompt is not that of its {count} siblings", rollout=id)
