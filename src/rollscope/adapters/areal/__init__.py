"""AReaL: every episode of any workflow or agent, and what was trained on.

One line, before `trainer.train(...)` as you have it:

    rollscope.adapters.areal.attach(trainer)

It records the workflows or agents of training and evaluation that `trainer.train` is given, with
advantages, fates and metrics. Without it, in a program that does not own the trainer:

    trainer.train(**rollscope.adapters.areal.traced(
        "areal.workflow.rlvr.RLVRWorkflow", reward_fn=..., gconfig=..., tokenizer=...))

This is short for

    trainer.train(workflow="rollscope.adapters.areal.TracedWorkflow",
                  workflow_kwargs={"inner": "areal.workflow.rlvr.RLVRWorkflow", ...})

An agent class may also be marked with `@rollscope.adapters.areal.agent`. What
`rollout.dump_to_file` has written is read by `rollscope import areal DIRECTORY`.
`docs/trainers/areal.md` says what is captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ... import capture
from .._record import installed
from .._settings import note
from .agent import agent
from .convert import EngineCall as Call
from .convert import convert
from .files import read, recognise
from .settings import algorithm
from .workflows import traced, traced_agent, traced_workflow

if TYPE_CHECKING:
    TracedAgent: type[Any]
    TracedWorkflow: type[Any]

__all__ = [
    "Call",
    "TracedAgent",
    "TracedWorkflow",
    "agent",
    "attach",
    "convert",
    "read",
    "recognise",
    "traced",
]

_Trainer = TypeVar("_Trainer")


def attach(trainer: _Trainer) -> _Trainer:
    """Record this trainer from now on: the workflows that its `train` is given, advantages, fates
    and metrics. Returns the trainer.

    Project and run are AReaL's `experiment_name` and `trial_name`.
    """
    from .trainer import TrainerRecorder

    with capture.guard("adapter areal: attach"):
        recorder = TrainerRecorder(trainer)
        if recorder.fits(
            recorder.watchers(),
            "AReaL",
            installed("areal"),
            supported="PPOTrainer of AReaL 1.0",
            lost="workflows, advantages and metrics are not recorded",
        ):
            config = getattr(trainer, "config", None)
            names = [getattr(config, n, None) for n in ("experiment_name", "trial_name")]
            if recorder.attach(*(name or None for name in names)):
                note("areal", recorder.run, algorithm, config)
    return trainer


def __getattr__(name: str) -> Any:
    if name == "TracedWorkflow":
        return traced_workflow()
    if name == "TracedAgent":
        return traced_agent()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
