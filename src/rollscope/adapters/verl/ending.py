"""The end of a training: what its workers still hold is written before they are killed.

Workers belong to the trainer's process. When it ends, Ray kills them at once, and rollouts that
are not decoded yet would be lost. The trainer's own last facts would be lost, too, if Ray killed
its process. So when `fit` ends, normally or not, every process is asked to write, and we wait for
the answers, but not for long.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from ... import capture
from ...capture import guard
from ...capture.background import CLOSE_WAIT
from .._seam import Look
from . import worker
from .patching import seams

_MANAGERS = ("agent_loop_manager", "async_rollout_manager")
"""Where a trainer keeps its workers: the v1 trainer, and the legacy one and its recipes."""


def patch(owner: Any, path: str) -> None:
    """The method `fit` of a trainer, and of classes that inherit it."""
    seams.wrap(owner, path, _write_all, _fit)


def _fit(method: Callable[..., Any]) -> Callable[..., Any]:
    look = Look(method, _write_all)

    async def async_fit(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        finally:
            with guard("adapter verl: end of the training"):
                await asyncio.to_thread(look, args, kwargs)

    def fit(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            with guard("adapter verl: end of the training"):
                look(args, kwargs)

    return async_fit if inspect.iscoroutinefunction(method) else fit


def _write_all(self: Any) -> None:
    if capture.active() is None:
        return
    import ray

    managers = [getattr(self, name, None) for name in _MANAGERS]
    workers = [w for m in managers for w in getattr(m, "agent_loop_workers", None) or ()]
    asked = [w.__ray_call__.remote(write) for w in workers if hasattr(w, "__ray_call__")]
    write()  # also for workers that live in this process
    if not asked:
        return
    answers, _ = ray.wait(asked, num_returns=len(asked), timeout=CLOSE_WAIT)
    unsure = len(asked) - sum(_is_written(answer) for answer in answers)
    if unsure:
        capture.report(
            "adapter verl",
            f"{unsure} of {len(asked)} workers did not say within {CLOSE_WAIT:.0f} s that their "
            "last rollouts are written; what Ray ends them with is lost, and shown as not ended",
        )


def _is_written(answer: Any) -> bool:
    import ray

    try:
        return bool(ray.get(answer))
    except Exception:  # the worker is dead, or has another Rollscope
        return False


def write(_: Any = None) -> bool:
    """Write what this process has recorded so far. False if that takes too long."""
    run = capture.active()
    if run is None:
        return True
    worker.flush()
    return run.flush(CLOSE_WAIT)
