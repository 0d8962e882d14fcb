"""Opening what others wrote: plain or compressed files, lines, lists too long for memory, dates."""

from __future__ import annotations

import codecs
import contextlib
import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..adapters._lines import LARGEST, TORN, decoded, lines, opened
from ..model import Rollout
from ..model.problem import Problem
from ._json import Scanner, head

ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What reading a value raises that is not as its format has it."""
ODD_OR_TORN = (*ODD, *TORN)

_COMPRESSED = (".gz", ".zst")


def plain_name(path: Path) -> str:
    """The name without `.gz` or `.zst`: `x.json` for `x.json.gz`."""
    return path.stem if path.suffix in _COMPRESSED else path.name


def plain_suffix(path: Path) -> str:
    """The ending without `.gz` or `.zst`: `.json` for `x.json.gz`."""
    return Path(plain_name(path)).suffix.lower()


def label(path: Path) -> str:
    """What tells a file from others of its name: `gpt-4/results`."""
    name = plain_name(path)
    return f"{path.absolute().parent.name}/{name.partition('.')[0] or name}"


class Entry(NamedTuple):
    """A value of a file, and where it stands in it."""

    value: Any
    number: int
    """From 1: of the line, or of the item of a list."""
    is_line: bool = True

    @property
    def place(self) -> str:
        return f"{'line' if self.is_line else 'item'} {self.number}"

    def problem(self, path: Path, text: str) -> Problem:
        if self.is_line:
            return Problem(path, self.number, text)
        return Problem(path, None, f"{self.place}: {text}")


def values(path: Path) -> Iterator[Entry | Problem]:
    """Every JSON value of a file: its lines, the items of its list, or objects that go over
    several lines."""
    kind = layout(path)
    if kind == "lines":
        for found in lines(path):
            yield found if isinstance(found, Problem) else Entry(found[1], found[0])
        return
    number = 0
    try:
        with opened(path) as file:
            scanner = Scanner(file)
            if kind == "list":
                for number, _ in enumerate(scanner.items(), 1):
                    yield Entry(scanner.value(), number, is_line=False)
            while kind == "objects" and scanner.kind() != "end":
                yield Entry(scanner.value(), number + 1, is_line=False)
                number += 1
    except (ValueError, *TORN) as error:
        yield Problem(path, None, f"cannot be read after item {number}: {error}")


def rollouts(
    path: Path, what: str, convert: Callable[[Entry], Iterable[Rollout | Problem]]
) -> Iterator[Rollout | Problem]:
    """What `convert` makes of every value of a file. A value that is not `what` is a problem, not
    the end."""
    for found in values(path):
        if isinstance(found, Problem):
            yield found
            continue
        try:
            yield from convert(found)
        except ODD as error:
            why = error if isinstance(error, ValueError) else repr(error)  # a bare key says nothing
            yield found.problem(path, f"not {what}: {why}")


def layout(path: Path) -> Literal["lines", "list", "objects"]:
    """How JSON lies in a file."""
    with contextlib.suppress(*TORN), opened(path) as file:
        line = b"\n"
        while line and not line.strip():
            line = file.readline(LARGEST).removeprefix(codecs.BOM_UTF8)
        if line.lstrip().startswith(b"["):
            return "list"
        with contextlib.suppress(ValueError):
            decoded(line)
            return "lines"
        file.seek(0)
        with contextlib.suppress(ValueError):
            Scanner(file).value()
            return "objects"
    return "lines"


def whole(path: Path) -> Any:
    """A JSON file's value. Raises ValueError or one of `TORN`."""
    with opened(path) as file:
        scanner = Scanner(file)
        value = scanner.value()
        if scanner.kind() != "end":
            raise ValueError("something follows after its value")
        return value


def entries(path: Path, names: Sequence[Any] = ()) -> Iterator[tuple[int | str, Any]]:
    """The entries of a list or object one by one, however long it is, by their numbers or names.
    `names` lead to it. Raises ValueError if it is torn."""
    with opened(path) as file:
        scanner = Scanner(file)
        for _ in _entered(scanner, names):
            is_object = scanner.kind() == "object"
            for place in scanner.members() if is_object else scanner.items():
                yield place, scanner.value()


def around(path: Path, names: Sequence[Any]) -> list[Any]:
    """The objects around what `names` lead to, from the outside in, without what they lead to."""
    with opened(path) as file:
        return _siblings(Scanner(file), names)


def _entered(scanner: Scanner, names: Sequence[Any]) -> Iterator[None]:
    if not names:
        if scanner.kind() in ("object", "list"):
            yield
    elif scanner.kind() == "object":
        for name in scanner.members():
            if name == names[0]:
                yield from _entered(scanner, names[1:])


def _siblings(scanner: Scanner, names: Sequence[Any]) -> list[Any]:
    own: dict[str, Any] = {}
    inner: list[Any] = []
    if names and scanner.kind() == "object":
        for name in scanner.members():
            if name != names[0]:
                own[name] = scanner.value()
            elif len(names) > 1:
                inner = _siblings(scanner, names[1:])
        return [own, *inner]
    return []


def first(path: Path) -> Any:
    """The first JSON value of a file (of its list, or its first line), by which it is recognised;
    None if there is none. Of a large object only the first members: see `head`."""
    try:
        about = path.stat()
    except OSError:
        return None
    return _first(path, about.st_size, about.st_mtime_ns)


def first_object(path: Path, *endings: str) -> dict[str, Any]:
    """`first` of a file with one of these endings, if it is an object; else an empty one."""
    found = first(path) if plain_suffix(path) in endings and path.is_file() else None
    return found if isinstance(found, dict) else {}


@functools.lru_cache(maxsize=1)  # all formats ask about one file, then about the next
def _first(path: Path, size: int, changed: int) -> Any:
    with contextlib.suppress(ValueError, *TORN), opened(path) as file:
        return head(file)
    return None


def number(value: Any) -> float | None:
    """A number, where there may be none."""
    return None if value is None else float(value)


def unread(part: Mapping[str, Any], read: Container[str]) -> dict[str, Any]:
    """What an object has that has no other place, for `meta`."""
    return {k: v for k, v in part.items() if k not in read and v not in (None, [], {})}


def seconds(text: Any) -> float | None:
    """An ISO date as Unix seconds; None if it is not one."""
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
