"""Run a program that the user does not own, with an adapter in it.

    python -m rollscope.adapters.trl <the command that one types today>

The command may begin with `python`, a script, `-m module`, or a command that is written in Python,
such as `trl` or `accelerate`. It runs in this process, as if it had been typed without us.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..capture.settings import setting

_PYTHON = re.compile(r"python(\d(\.\d+)?)?")


def main(arguments: Sequence[str], install: Callable[[], object], example: str) -> None:
    """Run the command with the adapter installed; under `ROLLSCOPE=off` without it."""
    words = [*arguments]
    if words and _PYTHON.fullmatch(Path(words[0]).name):
        del words[0]
    is_module = words[:1] == ["-m"] and len(words) > 1
    program = words[1] if is_module else _script(words)
    if program is None:
        tried = f"{words[0]!r} is no script, and no command of Python's. " if words else ""
        raise SystemExit(f"rollscope: {tried}Which program? For example:\n  {example}")
    if setting("ROLLSCOPE") is not False:
        install()
    if is_module:
        sys.argv = words[1:]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *words[1:]]
        sys.path.insert(0, str(Path(program).resolve().parent))  # as `python script.py` has it
        runpy.run_path(program, run_name="__main__")


def _script(words: Sequence[str]) -> str | None:
    """The file of the program: a script, or a command that Python runs."""
    if not words or words[0].startswith("-"):
        return None
    if Path(words[0]).is_file() and words[0].endswith(".py"):
        return words[0]
    own = str(Path(sys.executable).parent)  # it is this Python that will run it
    found = shutil.which(words[0], path=own) or shutil.which(words[0])
    if found is None:
        return words[0] if Path(words[0]).is_file() else None
    with Path(found).open("rb") as file:
        first = file.readline(200) + file.readline(200)  # a long path stands in the second line
    return found if first.startswith(b"#!") and b"python" in first else None
