"""How settings reach the actors of a Ray cluster.

Actors get the driver's environment only if the driver itself starts the cluster. On a cluster that
was started before, they have the cluster's environment. So the driver leaves its settings in the
cluster's key-value store, under its job, as soon as it is connected. Each process of the job takes
them over before it joins a run. A variable that is set in the actor itself (a `runtime_env`) wins.

`ray` is never imported here. Without it, both functions are cheap and silent.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .problems import guard, swallowed

_NAMESPACE = "rollscope"
_PREFIX = "ROLLSCOPE"
_PRIVATE = frozenset({"ROLLSCOPE_WORKER"})
"""Variables that name one process and must not be handed on."""

_adopted: str | None = None


def share() -> None:
    """Leave this driver's settings for its actors: now, or when `ray.init` has connected it."""
    ray: Any = sys.modules.get("ray")
    if ray is None:
        return
    with guard("sharing settings with Ray actors"):
        hooks = ray._private.worker._post_init_hooks
        if _publish not in hooks:
            hooks.append(_publish)
        _publish()


def _publish() -> None:
    """Write the settings under the driver's job. Called by Ray after each `ray.init`."""
    from .begin import child_env

    try:
        ray: Any = sys.modules["ray"]
        if not ray.is_initialized() or not _is_driver(ray):
            return
        mine = {k: v for k, v in os.environ.items() if k.startswith(_PREFIX)} | child_env()
        mine = {k: v for k, v in mine.items() if k not in _PRIVATE}
        if mine:
            _put(ray, json.dumps(mine).encode())
    except Exception as error:
        swallowed("sharing settings with Ray actors", error)


def adopt() -> None:
    """In a process of a Ray job: take over the driver's settings that are not set here."""
    global _adopted
    ray: Any = sys.modules.get("ray")
    if ray is None or not hasattr(ray, "is_initialized") or not ray.is_initialized():
        return
    with guard("taking over settings from the Ray driver"):
        job = _job(ray)
        if _adopted == job or _is_driver(ray):
            return
        data = _get(ray)
        if data is None:
            return  # the driver may still be about to say something
        _adopted = job
        for name, value in json.loads(data).items():
            os.environ.setdefault(name, value)


def _is_driver(ray: Any) -> bool:
    return bool(ray._private.worker.global_worker.mode == ray._private.worker.SCRIPT_MODE)


def _job(ray: Any) -> str:
    return str(ray.get_runtime_context().get_job_id())


def _put(ray: Any, data: bytes) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(_job(ray), data, overwrite=True, namespace=_NAMESPACE)


def _get(ray: Any) -> bytes | None:
    from ray.experimental.internal_kv import _internal_kv_get

    data: bytes | None = _internal_kv_get(_job(ray), namespace=_NAMESPACE)
    return data
