"""The process beside the server, or beside `watch`, that lets checks look at new rollouts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path


class Scanning:
    """Starts it, and lets it go. It ends with this process, however that ends."""

    def __init__(self, root: Path, query: str = "") -> None:
        self._root = root
        self._query = query
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Nothing is started for a folder that cannot be written."""
        if not os.access(self._root, os.W_OK):
            return
        with contextlib.suppress(OSError):  # no processes left: there are no new findings
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rollscope.checks", str(self._root), self._query],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server
                env={**os.environ, "ROLLSCOPE": "off"},
            )

    def stop(self) -> None:
        """What it has not finished is looked at the next time."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        ways: list[Callable[[], object]] = [self._process.terminate, self._process.kill]
        for end in (self._process.poll, *ways):
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                end()
                self._process.wait(1.0)
                return


@contextlib.contextmanager
def beside(root: Path, query: str = "") -> Iterator[bool]:
    """The process, while it is open. Did it start?"""
    scanning = Scanning(root, query)
    scanning.start()
    try:
        yield scanning.is_on
    finally:
        scanning.stop()
