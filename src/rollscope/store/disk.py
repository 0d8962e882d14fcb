"""Every change that sealing and compaction make to a store, in one place.

`before` is called ahead of each; the crash tests stop a sealer or compactor there, at every
single one. What a reader does is not here: it changes nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def before(operation: str, path: Path) -> None:
    """Called ahead of each operation. Does nothing; tests replace it."""


def make_dir(path: Path) -> None:
    before("make_dir", path)
    path.mkdir()


def write(path: Path, data: bytes) -> None:
    """Write a small file and make sure that it lies on the disk."""
    before("write", path)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make sure that a file, or the names in a directory, lie on the disk."""
    before("sync", path)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(fd)


def link(source: Path, target: Path) -> None:
    """The same file under a second name; a copy where the file system has no links."""
    before("link", target)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
        sync(target)


def commit(source: Path, target: Path) -> bool:
    """Rename a finished directory into its place. False: somebody else's is there already."""
    before("commit", target)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    sync(target.parent)
    return True


def unlink(path: Path) -> None:
    before("unlink", path)
    path.unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Remove a directory: it is gone at once for everybody who lists, then bit by bit."""
    before("remove", directory)
    if not directory.name.startswith("."):
        hidden = directory.with_name(f".gone-{directory.name}-{os.urandom(4).hex()}")
        try:
            directory.rename(hidden)
        except FileNotFoundError:
            return
        directory = hidden
        before("remove", directory)
    shutil.rmtree(directory, ignore_errors=True)
