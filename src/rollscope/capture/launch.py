"""Which launch this process belongs to: one start of the run's processes.

All processes of a launch should find the same name without talking to each other. A restart must
find another name, because it repeats steps. If in doubt, the name is too narrow rather than too
wide: if two launches shared a name, their rollouts would mix, but one launch with two names only
keeps them apart.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from typing import Any

from ..model.identity import base32
from ..store.writers import PROCESS, process_start


def launch_name() -> str:
    """The launch of this process, found anew (a fork or a late `ray.init` may change it)."""
    env = os.environ
    return env.get("ROLLSCOPE_LAUNCH") or _ray() or _torchrun() or _slurm() or _this_process()


def export_launch(name: str) -> None:
    """Let processes that this one starts belong to the same launch."""
    os.environ["ROLLSCOPE_LAUNCH"] = name


def job_of(launch: str) -> str:
    """The launch without SLURM's restart count: the same for all starts of a job."""
    return launch.rpartition("-")[0] if "slurm-" in launch else launch


def worker_name() -> str:
    """The name of this process among the workers of a run."""
    env = os.environ
    if env.get("ROLLSCOPE_WORKER"):
        return env["ROLLSCOPE_WORKER"]
    if env.get("RANK", "").isdecimal() and "WORLD_SIZE" in env:
        return f"rank{env['RANK']}"
    return f"{platform.node()}:{os.getpid()}"


def _ray() -> str | None:
    """Session and job: the session names the cluster's start, the job the driver's."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    try:
        job = ray.get_runtime_context().get_job_id()
        session = ray._private.worker.global_worker.node.session_name
    except Exception:  # another Ray than we know: the next rule will do
        return None
    return f"{session}-job{job}"


def _torchrun() -> str | None:
    """Id and restart count. People reuse ids, so the name also has the start of the agent (the
    parent of all ranks) on one machine, or the job on many machines under SLURM."""
    env = os.environ
    id = env.get("TORCHELASTIC_RUN_ID")
    if not id:
        return None
    parts = ["torchrun", id, env.get("TORCHELASTIC_RESTART_COUNT", "0")]
    job = _slurm()
    if env.get("GROUP_WORLD_SIZE", "1") == "1":
        agent = os.getppid()
        parts += [platform.node(), str(agent), process_start(agent) or ""]
    elif job:
        parts.append(job)
    elif id == "none":
        return None  # several machines and no id: nothing they have in common
    return "-".join(parts).rstrip("-")


def _slurm() -> str | None:
    """Job and restart count: a requeued job keeps its id."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return None
    parts = ["slurm", os.environ.get("SLURM_CLUSTER_NAME", ""), job]
    return "-".join([*filter(None, parts), os.environ.get("SLURM_RESTART_COUNT") or "0"])


_mine: tuple[int, str] | None = None


def _this_process() -> str:
    """A name made once for this process."""
    global _mine
    if _mine is None or _mine[0] != os.getpid():
        now = datetime.datetime.now(datetime.UTC)
        random = base32(int.from_bytes(os.urandom(4), "big"), 6)
        _mine = (os.getpid(), f"{PROCESS}{now:%Y%m%d-%H%M%S}-{platform.node()}-{random}")
    return _mine[1]
