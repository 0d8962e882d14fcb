"""Locks that the kernel lets go of when their process ends, however it ends: there is never a stale
one. Writers only ask whether one is held. They never wait for it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path


class Unsupported(Exception):
    """This file system has no locks."""


def take(file: Path) -> int | None:
    """Take the lock. Returns a descriptor to keep open, or None if another process has it."""
    fd = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise Unsupported(f"{file}: {os.strerror(error.errno or 0)}") from error
    return fd


def take_patiently(file: Path) -> int | None:
    """The same, but wait a moment: a writer may just be testing the lock."""
    for _ in range(10):
        held = take(file)
        if held is not None:
            return held
        time.sleep(0.02)
    return None


def is_removed(held: int) -> bool:
    """Was the file taken away? Then another process may hold a new lock of the same name."""
    return os.fstat(held).st_nlink == 0


def is_held(file: Path) -> bool:
    """Does a process hold it now? Raises Unsupported."""
    if not file.exists():
        return False
    fd = take(file)
    if fd is None:
        return True
    os.close(fd)
    return False
