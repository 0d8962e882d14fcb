"""A prompt that is not its group's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import habit, noted
from ..subject import OneGroup


@check(
    "group.prompt",
    kind="record",
    subject="group",
    means="A rollout has another prompt than its siblings: it stands in the wrong group, and is "
    "compared with answers to another question.",
    source="ours",
    needs=[noted("prompt", 3), habit("prompts", "whether siblings share their prompt")],
)
def prompt(
    group: OneGroup,
    *,
    usual: Annotated[float, "share of groups that share one prompt; ours"] = 0.9,
    most: Annotated[float, "share of the group that has the other prompt; ours"] = 0.34,
) -> Iterator[Spot]:
    prompts = {m.id: m.digest["prompt"] for m in group.members if "prompt" in m.digest}
    (common, count), *others = Counter(prompts.values()).most_common()
    if (group.share("prompts") or 0.0) < usual or len(prompts) - count > most * len(prompts):
        return
    for id, mine in prompts.items() if others else ():
        if mine != common:
            yield Spot(f"its prompt is not that of its {count} siblings", rollout=id)
