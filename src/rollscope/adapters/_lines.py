"""Files of one JSON value a line, plain or compressed, as programs leave them."""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from ..model.problem import Problem

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

MB = 1 << 20
LARGEST = 512 * MB
"""Bytes of the largest line, or other value, that is read. A gzip of zeros is a thousand times
larger than its file; a rollout of 100 turns is a few MB."""
TORN = (OSError, EOFError, zlib.error, zstd.ZstdError)
"""What reading a damaged or compressed file may raise."""
_ODD = "it is not UTF-8; what cannot be read became U+FFFD"

Line = tuple[int, Any]


def opened(path: Path) -> IO[bytes]:
    """A file's bytes, uncompressed if its name says so."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        return zstd.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def lines(path: Path) -> Iterator[Line | Problem]:
    """Every value, with the number of its line. A line that is none (torn by a kill) is a problem,
    not the end."""
    number = 0
    try:
        with opened(path) as file:
            while line := file.readline(LARGEST + 1):
                number += 1
                if len(line) > LARGEST:
                    what = f"a line of more than {LARGEST // MB} MB; the rest is not read"
                    yield Problem(path, number, what)
                    return
                if line.strip():
                    yield from _value(path, number, line)
    except TORN as error:
        yield Problem(path, number + 1, f"the file cannot be read further: {error}")


def _value(path: Path, number: int, line: bytes) -> Iterator[Line | Problem]:
    try:
        value, note = decoded(line)
    except ValueError as error:
        yield Problem(path, number, f"not JSON: {error}")
        return
    if note is not None:
        yield Problem(path, number, note)
    yield number, value


def decoded(data: bytes) -> tuple[Any, str | None]:
    """The value of a line, and what was odd about it. Raises ValueError. Python writes NaN and
    Infinity, some programs a byte order mark, and a byte may be no UTF-8: all are read.

    >>> decoded(b'{"reward": NaN}')
    ({'reward': nan}, None)
    """
    try:
        return msgspec.json.decode(data), None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError(why) from None
    return value, _ODD if not data.isascii() and not _is_utf8(data) else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def records(file: Path) -> Iterator[dict[str, Any] | Problem]:
    """Every object of the file. A line that is not one is a problem, not the end."""
    for found in lines(file):
        if isinstance(found, Problem):
            yield found
        elif isinstance(found[1], dict):
            yield found[1]
        else:
            yield Problem(file, found[0], f"expected an object, found {found[1]!r:.60}")


def first_record(file: Path) -> dict[str, Any]:
    """The first object, by which a file is recognised. Empty if there is none."""
    try:
        about = file.stat()
    except OSError:
        return {}
    return _first(file, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=1)  # all trainers' readers ask about one file, then about the next
def _first(file: Path, size: int, changed: int) -> dict[str, Any]:
    with contextlib.suppress(ValueError, *TORN), opened(file) as data:
        line = b"\n"
        while line and not line.strip():
            line = data.readline(LARGEST)
        found = decoded(line)[0] if line.lstrip()[:1] == b"{" else None
        return found if isinstance(found, dict) else {}
    return {}


def numbers(file: Path) -> Iterator[tuple[int | None, dict[str, float]]]:
    """A log of metrics, one object per line, as (step, values). Only numbers are taken."""
    for row in records(file) if file.is_file() else ():
        if not isinstance(row, Problem):
            step = row.get("step")
            values = {
                name: float(value)
                for name, value in row.items()
                if name not in ("step", "time") and isinstance(value, (int, float))
            }
            yield step if isinstance(step, int) else None, values
