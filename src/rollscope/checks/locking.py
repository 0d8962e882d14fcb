"""One scan of a run at a time. It saves work only: two would do no harm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..store.derived import FOLDER

LOCK = ".scanning"


class Busy(Exception):
    """Another process is scanning the run."""


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """While it is open, no other process of this machine scans the run. Raises `Busy`, or OSError
    if nothing can be written there."""
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no POSIX system: nobody is kept away
        yield
        return
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another process is scanning it") from None
        except OSError:
            pass  # not every file system has locks
        yield
    finally:
        os.close(file)
