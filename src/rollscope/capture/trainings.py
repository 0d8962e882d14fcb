"""Which run a training is recorded to.

The same names continue the same run: a restart needs that, and so does whoever adds to a run
later. But a training that begins anew is another training, and two of them in one run would be
shown as one. So if a run of these names has ended, or holds a training of this process, a new
training is recorded as `name-2`.

A run has ended if its last launch came to its end in order. If that was killed, or ended by an
exception, whatever begins under its name is its restart. So is another start of the same SLURM
job, and whatever carries the same launch because somebody gave it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..store.launches import found
from ..store.writers import PROCESS, WriterInfo, is_gone, read_infos
from .launch import job_of
from .setup import Setup


def of_its_own(setup: Setup, taken: Collection[Path]) -> Setup:
    """The setup for a training that begins anew, with a number if its run's name is used up.

    `taken` are the directories of runs that hold a training of this process.
    """
    name, number = setup.run, 1
    while setup.directory in taken or has_ended(setup.directory, setup.launch):
        number += 1
        setup = setup._replace(run=f"{name}-{number}", asked=name)
    return setup


def has_ended(directory: Path, launch: str | None = None) -> bool:
    """Did the last launch that recorded rollouts here come to its end in order?

    `launch` is the one that asks. A run of its own job goes on.
    """
    infos = list(read_infos(directory).values())
    recorded = [info for info in infos if info.counters.recorded]  # others only say facts
    if not recorded:
        return False
    earlier = {name for seen in found(infos).values() for name, size in seen.items() if size >= 0}
    newest = [info for info in recorded if info.launch not in earlier] or recorded
    last = max(newest, key=lambda info: info.started).launch
    if launch is not None and not launch.startswith(PROCESS) and job_of(last) == job_of(launch):
        return False
    return _is_complete([info for info in infos if info.launch == last])


def _is_complete(writers: list[WriterInfo]) -> bool:
    """Some trainers kill their workers when all is done: one writer that finished is enough."""
    return any(info.finished is not None for info in writers) and not any(
        info.crashed or (info.finished is None and not is_gone(info)) for info in writers
    )
