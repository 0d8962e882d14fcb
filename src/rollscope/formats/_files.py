"""Opening what others wrote: plain or gzipped files, lists too long for memory, folders, dates."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from ..model.problem import Problem

_CHUNK = 1 << 20


def opened(path: Path) -> IO[bytes]:
    """A file's bytes, uncompressed if its name says so."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def plain_suffix(path: Path) -> str:
    """The ending without `.gz`: `.json` for `x.json.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def below(path: Path, is_wanted: Callable[[Path], bool]) -> list[Path]:
    """The file itself, or the wanted files below a folder, sorted."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and is_wanted(file))


def lines(path: Path) -> Iterator[tuple[int, Any] | Problem]:
    """Every JSON value of a file of JSON lines, with its line number."""
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    yield Problem(path, number, f"not JSON: {error}")
    except (OSError, EOFError) as error:
        yield Problem(path, number + 1, f"the file cannot be read further: {error}")


def whole(path: Path) -> Any:
    """A JSON file's value. Raises ValueError or OSError."""
    with opened(path) as file:
        return json.load(file)


def items(path: Path) -> Iterator[Any]:
    """The items of a JSON list one by one, however long it is. Raises ValueError if it is torn."""
    decoder, text, at, is_end = json.JSONDecoder(), "", 0, False
    decode = codecs.getincrementaldecoder("utf-8")()
    with opened(path) as file:

        def more() -> bool:
            nonlocal text, at, is_end
            data = file.read(_CHUNK)
            is_end = not data
            text, at = text[at:] + decode.decode(data, is_end), 0
            return not is_end

        more()
        at = _skip(text, 0, " \t\r\n\ufeff")
        if text[at : at + 1] != "[":
            raise ValueError("expected a JSON list")
        at += 1
        while True:
            at = _skip(text, at, " \t\r\n,")
            if text[at : at + 1] == "]":
                return
            try:
                value, end = decoder.raw_decode(text, at)
                if end == len(text) and not is_end:  # a number may go on in the next chunk
                    raise ValueError
            except ValueError:
                if not more():
                    raise ValueError(f"the list is torn after {text[at : at + 40]!r}") from None
                continue
            at = end
            yield value


def first(path: Path) -> Any:
    """The first JSON value of a file (of its list, or its first line); None if there is none."""
    with contextlib.suppress(ValueError, OSError, EOFError):
        with opened(path) as file:
            start = file.read(4096).lstrip()[:1]
        if start == b"[":
            return next(items(path), None)
        found = next(lines(path), None)
        if isinstance(found, tuple):
            return found[1]
        return whole(path)
    return None


def seconds(text: Any) -> float | None:
    """An ISO date as Unix seconds; None if it is not one."""
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None


def _skip(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at
