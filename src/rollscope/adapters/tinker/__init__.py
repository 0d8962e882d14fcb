"""tinker-cookbook: every rollout of every environment, with one line.

    config = train.Config(dataset_builder=rollscope.adapters.tinker.traced(my_builder), ...)

`convert` works on what tinker-cookbook keeps: a `Trajectory` holds the tokens that the model
was shown and those it wrote. The prompt is read from these, so it is what the model saw, even
if an environment changes its history in place. An observation is made of chunks, one for the
header of each message: they give the roles, checked against the renderer that made them.

| here | there |
|---|---|
| `step` | the dataset's batch |
| `reward` | sum of the step rewards and the group's reward |
| a message's `reward`, `state`, `meta.metrics` | a transition's `reward`, `logs`, `metrics` |
| a branch of the tree | an observation that does not continue the one before |
"""

from __future__ import annotations

from typing import Any

from .convert import GroupPlace as Place
from .convert import Notes, convert
from .files import read, read_metrics, recognise

__all__ = ["Notes", "Place", "convert", "read", "read_metrics", "recognise", "traced"]


def traced(dataset_builder: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """The dataset builder, made to record every rollout of its datasets.

    Project and run are the trainer's `wandb_project` and `wandb_name` (else the name of its
    `log_path`) unless given. Under `ROLLSCOPE=off` it is returned as it is.
    """
    from . import hook

    return hook.traced(dataset_builder, project, run)
