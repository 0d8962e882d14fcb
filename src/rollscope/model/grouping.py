"""Groups: which rollouts are compared with each other.

A group is the rollouts that were made of one task at one step: those of one project, run, split
and step that carry the trainer's own name for the group. Where it gave none, they have the same
task of the same dataset and environment: task 7 of one dataset is not task 7 of another. A rollout
with neither group nor task is alone.

Rollouts of two launches are never in one group. Two starts of the same script give their groups
the same names, and other weights wrote what a restart has not made again.

The SQL speaks of the table `rollouts` as `r`; a test holds it and the Python to the same answers.
"""

from __future__ import annotations

from typing import Any, Protocol


class Grouped(Protocol):
    """What one must know of a rollout to tell its group: a `Rollout`, or a row of one."""

    id: Any
    project: Any
    run: Any
    split: Any
    step: Any
    dataset: Any
    task: Any
    group: Any
    environment: Any
    launch: Any


PLACE = ("project", "run", "split", "step")
"""Groups at different places are different ones, whatever their names."""

FIELDS = ("id", *PLACE, "group", "task", "dataset", "environment", "launch")
"""Everything that a rollout's group depends on."""

Name = tuple[Any, ...]


def name_of(rollout: Grouped) -> Name:
    """What tells a group from the others of its run, split and step."""
    if rollout.group is not None:
        return (rollout.group, None, None, rollout.launch, False)
    if rollout.task is not None:
        return (str(rollout.task), rollout.dataset, rollout.environment, rollout.launch, True)
    return (rollout.id,)


def group_of(rollout: Grouped) -> tuple[Any, ...]:
    """The same for all rollouts of a group, and for no others."""
    return (*(getattr(rollout, field) for field in PLACE), name_of(rollout))


def shared(rollout: Grouped) -> tuple[str, ...]:
    """The fields of which all rollouts of a group have the same value, and no others have."""
    if is_alone(rollout):
        return ("id",)
    named = () if rollout.group is not None else ("task", "dataset", "environment")
    return (*PLACE, "launch", "group", *named)


def is_alone(rollout: Grouped) -> bool:
    """Is it compared with no other?"""
    return rollout.group is None and rollout.task is None


IS_ALONE = 'coalesce(r."group", r."task") IS NULL'

NAME = """coalesce(r."group", r."task"),
    CASE WHEN r."group" IS NULL THEN r."dataset" END,
    CASE WHEN r."group" IS NULL THEN r."environment" END,
    r."launch",
    r."group" IS NULL"""
"""`name_of`, as columns to group by. It names no rollout that is alone."""

GROUP = ", ".join(f'r."{field}"' for field in PLACE) + ", " + NAME
"""`group_of`, as columns to group by. It names no rollout that is alone."""

ORDER = "group,task,dataset,environment,launch"
"""Sorted by this within its place, a group stands together."""
