"""Starting the processes that work beside a writer: sealing and forwarding.

On a busy machine a start takes seconds. So it has a thread of its own: writing never waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_PATIENCE = 5.0  # seconds that the end of the program waits for a start that is under way


class Starter:
    """Starts processes, one at a time."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._error: Exception | None = None

    @property
    def is_busy(self) -> bool:
        """Is a process running, or being started?"""
        if self._thread is not None and self._thread.is_alive():
            return True
        return self._process is not None and self._process.poll() is None

    def start(self, command: list[str], *, wait: bool = False) -> None:
        """Start Python with this command. `wait` until it has started: at the end of the program.

        `error` tells whether that failed.
        """
        if wait:
            if self._thread is not None:
                self._thread.join(_PATIENCE)
            self._start(command)
            return
        self._thread = threading.Thread(target=self._start, args=(command,), daemon=True)
        try:
            self._thread.start()
        except Exception as error:  # no threads left
            self._error = error

    def error(self, *, wait: bool = False) -> Exception | None:
        """Why the last start failed, once. `wait` for a start that is under way."""
        if wait and self._thread is not None:
            self._thread.join(_PATIENCE)
        error, self._error = self._error, None
        return error

    def _start(self, command: list[str]) -> None:
        try:
            import subprocess  # 10 ms that `import rollscope` need not pay

            _started[:] = [process for process in _started if process.poll() is None]
            self._process = subprocess.Popen(
                [sys.executable, "-P", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "ROLLSCOPE": "off"},
            )
            _started.append(self._process)
        except Exception as error:  # no processes left, the interpreter is ending, ...
            self._error = error


_started: list[subprocess.Popen[bytes]] = []  # kept, so that nobody waits for or warns of them
