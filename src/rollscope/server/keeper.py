"""Keeping the store in order while somebody looks at it.

It seals the logs of dead writers and compacts runs of many small segments, at the lowest priority.
Trainers do neither for other writers, and a plain reader never writes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from ..store.listing import list_run
from ..store.read.reader import Reader
from ..store.seal.compact import compact, dead_logs, wants_compaction
from ..store.writers import Watch

EVERY = 30.0
"""Seconds between two looks."""


class Keeper:
    """A thread that tends a store. A folder that cannot be written is left alone."""

    def __init__(self, reader: Reader, every: float = EVERY) -> None:
        self._reader = reader
        self._every = every
        self._watch = Watch()  # must be the same all the time: it notices who stopped beating
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollscope-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end. It may stop anywhere without harm."""
        self._end.set()

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # Linux: of this thread alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self._end.wait(self._every):
            for run in self._reader.runs():
                if self._end.is_set():
                    return
                with contextlib.suppress(Exception):  # a store that is only read, or vanished
                    tend(run.directory, self._watch)


def tend(directory: Path, watch: Watch) -> bool:
    """Seal and compact one run if it needs that. Did it?"""
    if not os.access(directory, os.W_OK):
        return False
    if not (wants_compaction(list_run(directory)) or dead_logs(directory, watch)):
        return False
    compact(directory, watch=watch)
    return True
