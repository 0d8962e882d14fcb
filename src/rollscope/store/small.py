"""Small JSON files, each with its own checksum: a flipped bit would make another true sentence.

The checksum is the last entry, `sum`. It is the CRC-32 of everything before the line it stands in.
Files of older versions have none and are taken as they are.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

T = TypeVar("T")

_SUM = re.compile(rb',\n "sum": "([0-9a-f]{8})"\n}\s*\Z')


def pack(record: object) -> bytes:
    """The text of the file."""
    body = msgspec.json.format(msgspec.json.encode(record), indent=1).removesuffix(b"\n}")
    return body + b',\n "sum": "%08x"\n}\n' % zlib.crc32(body)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read. Raises OSError if something else lies there: a pipe would keep us
    waiting for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


def load(path: Path, type: type[T]) -> T:
    """What a file says. Raises OSError if it cannot be read, ValueError if it is damaged."""
    with open_regular(path) as file:
        data = file.read()
    said = _SUM.search(data)
    if said is not None and zlib.crc32(data[: said.start()]) != int(said[1], 16):
        raise ValueError("its checksum does not fit")
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
