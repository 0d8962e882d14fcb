"""Attaches itself to every trainer of a program that the user does not own.

SkyRL trains in a Ray task. So every process of the program's Ray job waits for the trainer's class.
"""

from __future__ import annotations

from typing import Any

from ... import capture
from ...capture.cluster import share
from .._imports import when_imported
from .._seam import Seams, Watching

_seams = Seams("skyrl", "SkyRL")
_LOST = "what this program trains is not recorded"
_HOOK = "worker_process_setup_hook"


def install() -> None:
    """Record what this program trains, in this process or in the tasks of its Ray job."""
    import ray

    share()  # the cluster may have been started without this program's settings
    _seams.watch(ray, {"init": _init}, _LOST)
    wait()


def wait() -> None:
    """Attach to the trainers of this process, once their class is loaded."""
    when_imported("skyrl.train.trainer", _watch)


def uninstall() -> None:
    _seams.restore()


def _watch(module: Any) -> None:
    _seams.watch(module, {"RayPPOTrainer.__init__": _made}, _LOST)


def _made(trainer: Any, /) -> Watching:
    from . import attach

    yield
    attach(trainer)
    recorder = getattr(trainer, "_rollscope", None)
    if recorder is not None:
        recorder.ends_the_run = True


def _init(runtime_env: Any = None) -> Watching:
    asked = dict(runtime_env or {})
    if _HOOK in asked:
        capture.report("adapter skyrl", f"the program has a {_HOOK} of its own: {_LOST}")
        return
    yield {"runtime_env": asked | {_HOOK: _wait_in_worker}}


def _wait_in_worker() -> None:
    """Sent by value: a node without Rollscope must be able to load it, and do nothing."""
    try:
        from rollscope.adapters.skyrl.launching import wait
    except ImportError:
        return
    wait()


_wait_in_worker.__module__ = "__main__"
