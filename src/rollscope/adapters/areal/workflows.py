"""Workflows and agents as AReaL gets them: by the path of a class here, with the user's own inside.

AReaL hands workflows to its workers as the path of a class and its arguments. A `RolloutWorkflow`
becomes the `inner` of `TracedWorkflow`, and an agent (any other class with a `run`) that of
`TracedAgent`. Both classes are made on first use, because AReaL must be there.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from ... import capture
from .._seam import Watching, is_ours
from .agent import agent

_PACKAGE = __name__.rpartition(".")[0]


def traced(workflow: Any, **kwargs: Any) -> dict[str, Any]:
    """`workflow` and `workflow_kwargs` for AReaL, with this program's settings for its workers."""
    name = "TracedAgent" if _is_agent(_imported(workflow)) else "TracedWorkflow"
    return {
        "workflow": f"{_PACKAGE}.{name}",
        "workflow_kwargs": {"inner": workflow, "settings": capture.child_env(), **kwargs},
    }


def recorded(workflow: Any, kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`traced` for what a user gave to AReaL. None: it is recorded already, or cannot be.

    Of a finished object, AReaL's workers make a new one of its class, without its state. Only a
    program without workers can record it.
    """
    from areal.utils.environ import is_single_controller

    found = _imported(workflow)
    kind = found if isinstance(found, type) else type(found)
    ours = (traced_workflow(), traced_agent())
    if found is None or kind in ours or is_ours(getattr(kind, "run", None)):
        return None
    if isinstance(workflow, (str, type)):
        if isinstance(found, type) and not _is_agent(found) and kwargs is None:
            return None  # AReaL asks for them in its own words
        is_known = isinstance(workflow, type) and kind.__module__ != "__main__"
        path = f"{kind.__module__}.{kind.__qualname__}"
        return traced(path if is_known else workflow, **(kwargs or {}))
    if not is_single_controller() and not _is_agent(found):
        return {"workflow": traced_workflow()(inner=workflow), "workflow_kwargs": None}
    capture.report(
        "adapter areal",
        f"a finished {kind.__name__} is not recorded. Give AReaL its class or the class's path, "
        f"with workflow_kwargs; or mark an agent's class with @{_PACKAGE}.agent",
    )
    return None


def _imported(workflow: Any) -> Any:
    """What a path names, as AReaL itself imports it."""
    from areal.utils.dynamic_import import import_from_string

    return import_from_string(workflow) if isinstance(workflow, str) else workflow


def _is_agent(found: Any) -> bool:
    return not hasattr(found, "arun_episode") and callable(getattr(found, "run", None))


def _made(name: str, inner: Any, settings: Mapping[str, str] | None, kwargs: Any) -> Any:
    """The user's own workflow or agent, in the process that runs it."""
    if inner is None:
        raise TypeError(
            f"{name} records a workflow of yours: give its path as "
            "workflow_kwargs={'inner': 'areal.workflow.rlvr.RLVRWorkflow', ...}. Or give AReaL "
            f"your workflow as it is, and type {_PACKAGE}.attach(trainer) before trainer.train()"
        )
    for variable, value in (settings or {}).items():
        os.environ.setdefault(variable, value)
    inner = _imported(inner)
    return inner(**kwargs) if isinstance(inner, type) else inner


@functools.cache
def traced_workflow() -> type[Any]:
    from areal.api import RolloutWorkflow

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
            self, inner: Any = None, settings: dict[str, str] | None = None, **kwargs: Any
        ) -> None:
            self.inner = _made("TracedWorkflow", inner, settings, kwargs)
            if not hasattr(self.inner, "arun_episode"):
                raise TypeError(
                    f"{type(self.inner).__name__} is no RolloutWorkflow. If it is an agent, give "
                    f"AReaL workflow='{_PACKAGE}.TracedAgent', or mark its class with "
                    f"@{_PACKAGE}.agent and give it to AReaL as it is"
                )

        async def arun_episode(self, engine: Any, data: Any) -> Any:
            return await self.inner.arun_episode(engine, data)

    seams().watch(TracedWorkflow, {"arun_episode": episode}, "no episode is recorded")
    return _here(TracedWorkflow)


@functools.cache
def traced_agent() -> type[Any]:
    class TracedAgent:
        """Any agent, with its episodes recorded. Arguments: as for `TracedWorkflow`."""

        def __init__(
            self, inner: Any = None, settings: dict[str, str] | None = None, **kwargs: Any
        ) -> None:
            self.inner = _made("TracedAgent", inner, settings, kwargs)

        async def run(self, data: Any, **kwargs: Any) -> Any:
            return await self.inner.run(data, **kwargs)

    return agent(_here(TracedAgent))


def _here(cls: type[Any]) -> type[Any]:
    """Let the class be found by the path that users type."""
    cls.__module__, cls.__qualname__ = _PACKAGE, cls.__name__
    return cls
