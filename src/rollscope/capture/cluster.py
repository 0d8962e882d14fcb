"""How settings reach the actors of a Ray cluster.

Actors get the driver's environment only if the driver itself starts the cluster. On a cluster that
was started before, they have the cluster's environment. So the driver leaves its settings in the
cluster's key-value store, under its job, as soon as it is connected. Each process of the job takes
them over before it joins a run. A variable that is set in the actor itself (a `runtime_env`) wins.

`ray` is never imported here. Without it, all functions are cheap and silent.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ..store.carry.home import NAMESPACE
from .problems import guard, swallowed
from .settings import setting

_PREFIX = "ROLLSCOPE"
_PRIVATE = frozenset({"ROLLSCOPE_WORKER"})
"""Variables that name one process and must not be handed on."""

_adopted: str | None = None
_is_asked = False
"""Will actors record, though this process may have no run?"""


def share(*, asked: bool = False) -> None:
    """Leave this driver's settings for its actors: now, or when `ray.init` has connected it.

    `asked`: actors will record, though this process may have no run.
    """
    global _is_asked
    _is_asked |= asked
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
    from . import carrying
    from .begin import active, child_env

    try:
        ray: Any = sys.modules["ray"]
        if not ray.is_initialized() or not is_driver(ray):
            return
        mine = {k: v for k, v in os.environ.items() if k.startswith(_PREFIX)} | child_env()
        mine = {k: v for k, v in mine.items() if k not in _PRIVATE}
        if mine:
            put(job(ray), json.dumps(mine).encode())
        if _is_asked or setting("ROLLSCOPE") or active() is not None:
            carrying.claim(ray, mine.get("ROLLSCOPE_DIR"))
    except Exception as error:
        swallowed("sharing settings with Ray actors", error)


def adopt() -> None:
    """In a process of a Ray job: take over the driver's settings that are not set here."""
    global _adopted
    ray = connected()
    if ray is None:
        return
    with guard("taking over settings from the Ray driver"):
        mine = job(ray)
        if _adopted == mine or is_driver(ray):
            return
        data = get(mine)
        if data is None:
            return  # the driver may still be about to say something
        _adopted = mine
        for name, value in json.loads(data).items():
            os.environ.setdefault(name, value)


def connected() -> Any:
    """Ray, if this process belongs to a cluster."""
    ray: Any = sys.modules.get("ray")
    is_up = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
    return ray if is_up else None


def is_driver(ray: Any) -> bool:
    return bool(ray._private.worker.global_worker.mode == ray._private.worker.SCRIPT_MODE)


def is_worker(ray: Any) -> bool:
    """Is this an actor or a task, and no driver, near or far (Ray Client)?"""
    return bool(ray._private.worker.global_worker.mode == ray._private.worker.WORKER_MODE)


def job(ray: Any) -> str:
    return str(ray.get_runtime_context().get_job_id())


def put(key: str, data: bytes, overwrite: bool = True) -> None:
    """Leave something in the cluster's key-value store."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, data, overwrite=overwrite, namespace=NAMESPACE)


def get(key: str) -> bytes | None:
    from ray.experimental.internal_kv import _internal_kv_get

    data: bytes | None = _internal_kv_get(key, namespace=NAMESPACE)
    return data
