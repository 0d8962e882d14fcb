"""One task id for several tasks."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import noted
from ..subject import OneGroup


@check(
    "task.collapsed",
    kind="record",
    subject="group",
    means="One task id stands for several prompts at one step: histories, pass rates and groups "
    "mix different tasks.",
    source="ours",
    needs=[noted("prompt")],
)
def collapsed(group: OneGroup) -> Iterator[Spot]:
    prompts = int(group.about.get("task_prompts", 1))
    if prompts > 1:
        task = group.members[0].row["task"]
        yield Spot(f"task {task!r} has {prompts} prompts at this step, each several times",
                   value=prompts)  # fmt: skip
