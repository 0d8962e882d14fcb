"""AReaL: every episode of any workflow or agent, and what was trained on.

Give the path of your workflow (AReaL hands workflows to its workers as text):

    trainer.train(**rollscope.adapters.areal.traced(
        "areal.workflow.rlvr.RLVRWorkflow", reward_fn=..., gconfig=..., tokenizer=...))

This is short for

    trainer.train(workflow="rollscope.adapters.areal.TracedWorkflow",
                  workflow_kwargs={"inner": "areal.workflow.rlvr.RLVRWorkflow", ...})

An agent class is marked with `@rollscope.adapters.areal.agent`. Advantages, fates and metrics
come with `rollscope.adapters.areal.attach(trainer)`. What `rollout.dump_to_file` has written is
read by `rollscope import areal DIRECTORY`. `docs/trainers/areal.md` says what is captured.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

from ... import capture
from .._record import installed
from .._seam import Watching
from .agent import agent
from .convert import EngineCall as Call
from .convert import convert
from .files import read, recognise

if TYPE_CHECKING:
    TracedWorkflow: type[Any]

__all__ = [
    "Call",
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
    """Record advantages, fates and metrics of this trainer from now on. Returns the trainer.

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
            lost="advantages and metrics are not recorded",
        ):
            config = getattr(trainer, "config", None)
            names = [getattr(config, n, None) for n in ("experiment_name", "trial_name")]
            recorder.attach(*(name or None for name in names))
    return trainer


def traced(workflow: str, **kwargs: Any) -> dict[str, Any]:
    """`workflow` and `workflow_kwargs` for AReaL, with this program's settings for its workers."""
    return {
        "workflow": f"{__name__}.TracedWorkflow",
        "workflow_kwargs": {"inner": workflow, "settings": capture.child_env(), **kwargs},
    }


@functools.cache
def _traced_workflow() -> type[Any]:
    """`TracedWorkflow`. It is made on first use, because its base class is AReaL's."""
    from areal.api import RolloutWorkflow
    from areal.utils.dynamic_import import import_from_string

    from .hook import EpisodeWatch, RecordingEngine, seams

    def episode(self: Any, engine: Any, data: Any) -> Watching:
        watch = EpisodeWatch(engine, data, getattr(self.inner, "tokenizer", None))
        if watch.run is not None:
            engine = RecordingEngine(engine, watch.calls)
        yield from watch.whole({"engine": engine})

    class TracedWorkflow(RolloutWorkflow):  # type: ignore[misc]
        """Any workflow, with its episodes recorded.

        `inner` is a path, a class or a workflow. `settings` are environment variables of the
        program that started this worker. All other arguments go to the inner workflow.
        """

        def __init__(
            self, inner: Any, settings: dict[str, str] | None = None, **kwargs: Any
        ) -> None:
            for name, value in (settings or {}).items():
                os.environ.setdefault(name, value)
            inner = import_from_string(inner) if isinstance(inner, str) else inner
            self.inner = inner(**kwargs) if isinstance(inner, type) else inner
            if not hasattr(self.inner, "arun_episode"):
                raise TypeError(
                    f"{type(self.inner).__name__} is no RolloutWorkflow. If it is an agent, mark "
                    "its class with @rollscope.adapters.areal.agent and give it to AReaL as it is"
                )

        async def arun_episode(self, engine: Any, data: Any) -> Any:
            return await self.inner.arun_episode(engine, data)

    seams().watch(TracedWorkflow, {"arun_episode": episode}, "no episode is recorded")
    TracedWorkflow.__module__ = __name__
    TracedWorkflow.__qualname__ = "TracedWorkflow"
    return TracedWorkflow


def __getattr__(name: str) -> Any:
    if name == "TracedWorkflow":
        return _traced_workflow()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
