"""Attaching to verl, but only when somebody asked.

Until then no function of verl is replaced. Only a descriptor waits for one attribute:
`AgentLoopWorker`, `PPOTrainer` and `RayPPOTrainer` all begin with `self.config = config`, and at
that assignment we read verl's own configuration. If it says
`actor_rollout_ref.rollout.trace.backend=rollscope`, or a run is active, or `ROLLSCOPE=on` is set,
verl's functions are watched. Otherwise nothing happens.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from ... import capture
from ...capture import Run, Sample, guard
from ...capture.settings import setting
from .._imports import when_imported
from .._seam import Watcher, in_place_of
from .._settings import note
from . import trainer, trainer_legacy, trainer_v1, worker
from .patching import LOST, seams
from .recording import attributes, traced
from .settings import algorithm

BACKEND = "rollscope"
"""The word for `actor_rollout_ref.rollout.trace.backend`."""

_FIRST = (0, 9)
"""Of older versions nothing is watched: their functions differ, and no test runs them."""

_AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
_LEGACY, _V1 = "verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v1.trainer_base"
_SEPARATE = "verl.experimental.separation.ray_trainer"
"""`fully_async_policy` and `one_step_off_policy` are built on it. It has imported
`compute_advantage` under a name of its own."""

_CONFIGURED = {
    (_AGENT_LOOP, "AgentLoopWorker"): "worker",
    (_LEGACY, "RayPPOTrainer"): "trainer",
    (_V1, "PPOTrainer"): "trainer",
}
"""Classes whose instances get verl's whole configuration as `self.config`."""


def _watching(watchers: Mapping[str, Watcher]) -> Callable[[ModuleType], Any]:
    return lambda module: seams.watch(module, watchers, LOST)


_PATCHES: dict[str, dict[str, Callable[[ModuleType], Any]]] = {
    "worker": {
        _AGENT_LOOP: worker.patch,
        "verl.experimental.agent_loop.tool_agent_loop": worker.patch_tools,
        "transfer_queue": _watching({"async_kv_batch_put": trainer_v1.row_tags}),
        "verl.utils.rollout_trace": lambda module: _patch_ops(module),
    },
    "trainer": {
        _AGENT_LOOP: trainer_legacy.patch_manager,
        _LEGACY: trainer_legacy.patch,
        _SEPARATE: trainer_legacy.patch_advantage,
        "verl.experimental.fully_async_policy.detach_utils": _watching(
            {"addition_process": trainer_legacy.addition_process}
        ),
        _V1: trainer_v1.patch,
        "verl.trainer.ppo.v1.replay_buffer": _watching(
            {
                "ReplayBuffer._evict_terminal_groups": trainer_v1.evicted,
                "ReplayBuffer._clear_groups": trainer_v1.cleared,
            }
        ),
        "verl.utils.tracking": _watching({"Tracking.log": trainer.metrics}),
    },
}
"""What is watched where. A trainer's process must not touch the worker's class. It sends that
class to Ray, and functions that verl did not define would be sent by value."""


def wait() -> None:
    """Look at verl's configuration as soon as there is one. This replaces no function."""
    for (module, name), role in _CONFIGURED.items():
        when_imported(module, _watch(name, role))


def attach(config: Any = None) -> Run | None:
    """Record verl's rollouts in this process: into the active run, or one named by `config`.

    Needed only in scripts that use verl's functions without a worker or trainer object.
    """
    return _consider(config, "worker", asked=True) and _consider(config, "trainer", asked=True)


def _watch(name: str, role: str) -> Callable[[ModuleType], None]:
    def watch(module: ModuleType) -> None:
        with guard(f"adapter verl: {module.__name__}.{name}"):
            found = getattr(module, name, None)
            if not isinstance(found, type) and _is_too_old():
                return  # told as soon as somebody asks
            if not isinstance(found, type):
                raise AttributeError(f"verl {_version()} has no class {name} in {module.__name__}")
            if not isinstance(vars(found).get("config"), _Config):
                found.config = _Config(role)  # type: ignore[attr-defined]

    return watch


class _Config:
    """A `config` attribute that we look at when it is set. It behaves like any other."""

    def __init__(self, role: str) -> None:
        self.role = role

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["config"] = value
        with guard("adapter verl: reading the configuration"):
            if _consider(value, self.role) is not None:
                _patch_class(type(instance), self.role)


def _patch_class(cls: type, role: str) -> None:
    """Watch an actor's own class, into which Ray has copied the methods of its bases."""
    legacy = sys.modules.get(_LEGACY)
    if role == "worker":
        worker.patch_class(cls)
    elif legacy is not None and issubclass(cls, legacy.RayPPOTrainer):
        trainer_legacy.patch_class(cls)


def _consider(config: Any, role: str, asked: bool = False) -> Run | None:
    trace = _select(config, "actor_rollout_ref.rollout.trace") or {}
    by_config = trace.get("backend") == BACKEND
    if role == "trainer" or asked:  # one process, not each worker
        _tell_misspelt(trace.get("backend"))
    if _is_too_old():
        if role == "trainer" or asked:
            _tell_too_old(asked or by_config)
        return None
    project = trace.get("project_name") or _select(config, "trainer.project_name")
    name = trace.get("experiment_name") or _select(config, "trainer.experiment_name")
    cap = trace.get("max_samples_per_step_per_worker")
    run = capture.join(
        project,
        name,
        adapter="verl",
        version=_version(),
        seams=worker.SEAMS,
        asked=asked or by_config,
        config=_plain(config),
        sample=None if cap is None else Sample(groups_per_step=int(cap)),
    )
    if run is not None:
        note("verl", run, algorithm, config)
        if _detach not in run.before_finish:
            run.before_finish.append(_detach)
        _patch(role)
    return run


def _is_too_old() -> bool:
    found = re.match(r"(\d+)\.(\d+)", _version() or "")
    return found is not None and (int(found[1]), int(found[2])) < _FIRST


def _tell_too_old(asked: bool) -> None:
    is_on = setting("ROLLSCOPE")
    if is_on is not False and (asked or is_on or capture.active() is not None):
        first = ".".join(map(str, _FIRST))
        capture.report(
            "adapter verl",
            f"verl {_version()} is too old: nothing is recorded, and the training runs as it does "
            f"without Rollscope. Supported: verl {first} and newer",
        )


def _tell_misspelt(backend: Any) -> None:
    """verl takes any word, and does nothing with one that it does not know."""
    if backend != BACKEND and difflib.get_close_matches(str(backend), [BACKEND], cutoff=0.7):
        capture.report(
            "adapter verl",
            f"trace.backend={backend} asks for nothing that verl or Rollscope knows; to record, "
            f"write trace.backend={BACKEND}",
        )


def _select(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = None if config is None else config.get(name)
    return config


def _plain(config: Any) -> dict[str, Any] | None:
    """The configuration as JSON. Interpolations stay as they are written."""
    if config is None:
        return None
    from omegaconf import OmegaConf

    if not OmegaConf.is_config(config):
        return dict(config)
    made = OmegaConf.to_container(config, resolve=False)
    return made if isinstance(made, dict) else None


def _version() -> str | None:
    return getattr(sys.modules.get("verl"), "__version__", None)


# -- wrapping --------------------------------------------------------------------------

_patched: set[tuple[str, str]] = set()


def _patch(role: str) -> None:
    seams.trainer = f"verl {_version()}"
    for name, patch in _PATCHES[role].items():
        if (role, name) not in _patched:
            _patched.add((role, name))
            when_imported(name, _guarded(role, patch))


def _detach() -> None:
    """The run ends: give verl its functions back."""
    _patched.clear()
    seams.restore()


def _guarded(role: str, patch: Callable[[ModuleType], Any]) -> Callable[[ModuleType], None]:
    def guarded(module: ModuleType) -> None:
        # Else the run ended before the module was imported.
        if (role, module.__name__) in _patched:
            with guard(f"adapter verl: {module.__name__}"):
                patch(module)

    return guarded


def _patch_ops(rollout_trace: ModuleType) -> None:
    """Watch every method that is marked with verl's `rollout_trace_op`, now or later.

    verl's own wrapper stays inside ours, so its own backends go on as before.
    """
    names = {"rollout_trace_op": lambda: None, "rollout_trace_attr": lambda: None}
    if not seams.fit(rollout_trace, names, LOST):
        return
    original = rollout_trace.rollout_trace_op

    def rollout_trace_op(function: Any) -> Any:
        return traced(original(function))

    in_place_of(original, rollout_trace_op)
    attr = rollout_trace.rollout_trace_attr
    ours = {original: rollout_trace_op, attr: seams.watched(attr, attributes, attr.__name__)}
    marks = _codes_of(original)
    for module in list(sys.modules.values()):
        found = getattr(module, "__dict__", {})
        wanted = (original, attr, rollout_trace)
        if not any(value is one for value in found.values() for one in wanted):
            continue  # nothing in it can be marked
        for name, value in list(found.items()):
            if value is original or value is attr:
                seams.replace(module, name, ours[value])
            elif isinstance(value, type):
                _trace_marked(value, marks)
            elif type(value).__name__.startswith("ActorClass"):  # of Ray
                _trace_marked(value.__ray_metadata__.modified_class, marks)


def _codes_of(decorator: Callable[..., Any]) -> set[Any]:
    """The code that verl's decorator puts around a method. Marked methods are found by it."""

    async def async_example(self: Any) -> None: ...

    def example(self: Any) -> None: ...

    return {decorator(async_example).__code__, decorator(example).__code__}


def _trace_marked(cls: type, marks: set[Any]) -> None:
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and method.__code__ in marks:
            seams.replace(cls, name, traced(method))
