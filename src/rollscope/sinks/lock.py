"""Who forwards: the process that holds `<run>/sinks/<name>.lock`.

The kernel lets go of the lock when the process ends, however it ends, so there is never a
stale one. Only forwarding needs it: a writer asks whether it is held, and never waits for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path


class Unsupported(Exception):
    """This file system has no locks."""


def path(directory: Path, name: str) -> Path:
    return directory / "sinks" / f"{name}.lock"


def take(directory: Path, name: str) -> int | None:
    """Take the lock. Returns a descriptor to keep open, or None if another process has it."""
    file = path(directory, name)
    file.parent.mkdir(exist_ok=True)
    fd = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise Unsupported(f"{file}: {os.strerror(error.errno or 0)}") from error
    return fd


def take_patiently(directory: Path, name: str) -> int | None:
    """The same, but wait a moment: a writer may just be testing the lock."""
    for _ in range(10):
        held = take(directory, name)
        if held is not None:
            return held
        time.sleep(0.02)
    return None


def is_removed(held: int) -> bool:
    """Was the run taken away? Then another process may hold a new lock of the same name."""
    return os.fstat(held).st_nlink == 0


def is_held(directory: Path, name: str) -> bool:
    """Does a process forward now? Raises Unsupported."""
    if not path(directory, name).exists():
        return False
    fd = take(directory, name)
    if fd is None:
        return True
    os.close(fd)
    return False
