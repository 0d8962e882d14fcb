"""Runs what a page types, in its order, and writes the answers into it: `make tutorial`.

A block ```console holds commands (`$ rollscope ...`) and their answers at 80 columns. A block
```python is a program, and a block ```text right behind it is what the program prints.

Ids are new in every store. An id that a page types is one that an earlier answer shows, so it
becomes the id that now stands in its place. The tests run the page in the same way.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollscope.cli import main

_STEP = re.compile(
    r"^\$ (?P<command>[^\n]+)\n(?P<answer>(?:(?!\$ |```)[^\n]*\n)*)"
    r"|^```python\n(?P<program>.*?)^```\n(?:\n*```text\n(?P<printed>.*?)^```)?",
    re.M | re.S,
)
_ID = re.compile(r"\b[0-9a-f]{20}\b")
_BEGINNING = re.compile(r"\b[0-9a-f]{6,20}\b")


@dataclass
class Step:
    typed: str
    """What was run: with the ids of this store."""
    shown: str | None
    """The answer in the page; None: the page shows none."""
    code: int
    said: str
    """The answer now."""
    match: re.Match[str]


def steps(page: str) -> Iterator[Step]:
    """Run a page over the store in `$ROLLSCOPE_DIR`."""
    names: dict[str, Any] = {}
    ids: dict[str, str] = {}
    for match in _STEP.finditer(page):
        shown = match["answer"] if match["command"] else match["printed"]
        typed = _BEGINNING.sub(lambda old: _renamed(old[0], ids), match["command"] or "")
        code, said = _command(typed) if typed else _program(match["program"], names)
        ids.update(zip(_ID.findall(shown or ""), _ID.findall(said), strict=False))
        yield Step(typed or match["program"], shown, code, said, match)


def _renamed(beginning: str, ids: dict[str, str]) -> str:
    return next(
        (new[: len(beginning)] for old, new in ids.items() if old.startswith(beginning)), beginning
    )


def _command(typed: str) -> tuple[int, str]:
    name, *words = shlex.split(typed)
    if name != "rollscope":
        raise ValueError(f"a page types {name}; only rollscope can be run")
    with _listening() as said:
        code = main(words)
    return code, _trimmed(said)


def _program(text: str, names: dict[str, Any]) -> tuple[int, str]:
    with _listening() as said:
        exec(text, names)
    return 0, _trimmed(said)


@contextlib.contextmanager
def _listening() -> Iterator[io.StringIO]:
    os.environ["COLUMNS"] = "80"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        yield said


def _trimmed(said: io.StringIO) -> str:
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())


def written(page: str) -> str:
    """The page with the ids and answers of this store."""
    parts, done = [], 0
    for step in steps(page):
        if step.code not in (0, 1):
            raise RuntimeError(f"{step.typed}: exit code {step.code}\n{step.said}")
        new = {"command": step.typed, "answer": step.said, "printed": step.said}
        for group, text in new.items():
            if step.match[group] is not None:
                parts += [page[done : step.match.start(group)], text]
                done = step.match.end(group)
    return "".join([*parts, page[done:]])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(written(Path(name).read_text()))
