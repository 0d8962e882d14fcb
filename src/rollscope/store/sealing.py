"""The separate process that seals a writer's finished logs, so that no thread of the trainer does.
It takes several logs at a time, because its start costs as much as sealing 2,000 small rollouts."""

from __future__ import annotations

from pathlib import Path

from . import writers
from .starting import Starter

TOGETHER = 2
"""Finished logs that one process seals."""

PATIENCE = 30.0
"""Seconds that a finished log waits for another one."""


class Sealer:
    """Starts one process at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: list[str] = []
        self._since = 0.0
        self._starter = Starter()

    def add(self, log: str) -> None:
        """A log is finished; `start` sees to it."""
        if not self._logs:
            self._since = writers.steady()
        self._logs.append(log)

    def start(self, all: bool = False) -> str | None:
        """Start a process if it is time for one. At the end (`all`), start one for all that is
        left.

        Returns what went wrong, now or the last time, in words for a person.
        """
        waited = writers.steady() - self._since
        is_time = len(self._logs) >= TOGETHER or waited >= PATIENCE
        if self._logs and (all or (is_time and not self._starter.is_busy)):
            logs, self._logs = self._logs, []
            command = ["-m", "rollscope.store.seal", str(self._directory), *logs]
            self._starter.start(command, wait=all)
        error = self._starter.error()
        if error is None:
            return None
        return (
            f"the process that seals logs did not start ({error}); "
            "`rollscope compact` does it later."
        )
