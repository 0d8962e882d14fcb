"""The separate process that seals a writer's finished logs, so that no thread of the trainer does.
It takes several logs at a time, because its start costs as much as sealing 2,000 small rollouts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import writers

if TYPE_CHECKING:
    import subprocess

TOGETHER = 2
"""Finished logs that one process seals."""

PATIENCE = 30.0
"""Seconds that a finished log waits for another one."""


class Helper:
    """Starts one process at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: list[str] = []
        self._since = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, log: str) -> None:
        """A log is finished; `start` sees to it."""
        if not self._logs:
            self._since = writers.steady()
        self._logs.append(log)

    def start(self, all: bool = False) -> str | None:
        """Start a process if it is time for one. At the end (`all`), start one for all that is
        left.

        Returns what went wrong, in words for a person.
        """
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        waited = writers.steady() - self._since
        is_time = len(self._logs) >= TOGETHER or waited >= PATIENCE
        if not self._logs or not (all or (is_time and self._process is None)):
            return None
        import subprocess  # 10 ms that `import rollscope` need not pay

        logs, self._logs = self._logs, []
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rollscope.store.seal", str(self._directory), *logs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "ROLLSCOPE": "off"},
            )
            _started.append(self._process)
        except Exception as error:  # no processes left, the interpreter is ending, ...
            return (
                f"the process that seals logs did not start ({error}); "
                "`rollscope compact` does it later."
            )
        return None


_started: list[subprocess.Popen[bytes]] = []  # kept, so that nobody waits for or warns of them
