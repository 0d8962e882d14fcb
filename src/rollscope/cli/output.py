"""How commands speak: tables on a terminal, JSON lines for programs, errors for people."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..model.counted import counted as counted
from . import render


class Failed(Exception):
    """A command cannot do what was asked. The text tells why and what to type."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` on."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least or (most is not None and value > most):
            wanted = f"at least {least}" if most is None else f"between {least} and {most}"
            raise argparse.ArgumentTypeError(f"{value} is not {wanted}")
        return value

    return read


_ASCII = str.maketrans("…–·→─│", "~-|>-|")
"""One character for one, so that columns stay where they are."""


def _in_other_words(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    said = error.object[error.start : error.end].translate(_ASCII)
    return "".join(c if c.isascii() else ascii(c)[1:-1] for c in said), error.end


def speak_plainly() -> None:
    """On a terminal that knows only some characters, the others are written in those."""
    # Python has no stream for an output that is closed. To write there fails like on a full disk;
    # words for people who do not listen are dropped.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    codecs.register_error("rollscope", _in_other_words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="rollscope")


def end_output() -> OSError | None:
    """What keeps the last of the output from being written, if anything does. Then nothing more
    goes out: Python would complain once again when it ends."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


class Column:
    """One column of a table: its heading, the attribute it shows, and how."""

    def __init__(self, name: str, title: str | None = None, *, width: int | None = None) -> None:
        self.name = name
        self.title = render.safe(title if title is not None else name)
        self.width = width

    def cell(self, row: Any) -> str:
        value = row.get(self.name) if isinstance(row, dict) else getattr(row, self.name, None)
        if value is None:
            return render.MISSING
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (int, float)):
            return render.number(value)
        if isinstance(value, list):
            value = " ".join(map(str, value))
        return render.one_line(str(value), self.width or 200)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `| head` has seen enough: this is no failure


def console() -> Console:
    # Output that goes into a pipe or file is not cut at 80 columns.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return _Console(width=width, highlight=False, markup=False, soft_wrap=False)


def table(rows: Iterable[Any], columns: Sequence[Column]) -> int:
    """Print a table; returns how many rows. Columns without a width share what is left."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    if not cells:
        return 0
    out, gap = console(), 2
    widths = [
        min(column.width or 10_000, max(len(text) for text in (column.title, *shown)))
        for column, shown in zip(columns, zip(*cells, strict=True), strict=True)
    ]
    free = [i for i, column in enumerate(columns) if column.width is None]
    left = (
        out.width - gap * (len(columns) - 1) - sum(w for i, w in enumerate(widths) if i not in free)
    )
    for n, i in enumerate(sorted(free, key=lambda i: widths[i])):  # the widest get what is left
        widths[i] = min(widths[i], max(8, left // (len(free) - n)))
        left -= widths[i]
    grid = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, gap, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(column.title, no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        grid.add_row(*row)
    out.print(grid)
    return len(cells)


def json_line(value: Any) -> None:
    """One line of JSON on standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(value, enc_hook=_plain) + b"\n")
    sys.stdout.buffer.flush()


def say(text: str = "") -> None:
    """Words for the person at the terminal, beside the data: standard error. Names in them may
    come from anywhere: nothing that a terminal would obey goes out."""
    print(render.safe(text), file=sys.stderr)


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Any]:
    """A progress bar on standard error; `update(done)` moves it, `update(done, total)` tells
    what "all" is. Silent when nobody looks."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "arrays"):
        return dict(value.arrays())
    return str(value)
