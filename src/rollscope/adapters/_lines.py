"""Files of one JSON object a line, plain or compressed, as trainers leave them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model.problem import Problem


def records(file: Path) -> Iterator[dict[str, Any] | Problem]:
    """Every object of the file. A line that is not one (torn by a kill) is a problem, not the
    end."""
    try:
        with _open(file) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _record(file, number, line)
    except (OSError, EOFError) as error:
        yield Problem(file, None, f"the file cannot be read further: {error}")


def first_record(file: Path) -> dict[str, Any]:
    """The first object, by which a file is recognised. Empty if there is none."""
    found = next(records(file), {})
    return {} if isinstance(found, Problem) else found


def _record(file: Path, number: int, line: bytes) -> dict[str, Any] | Problem:
    try:
        record = json.loads(line)
    except ValueError as error:
        return Problem(file, number, f"not JSON: {error}")
    if not isinstance(record, dict):
        return Problem(file, number, f"expected an object, found {line[:60]!r}")
    return record


def _open(file: Path) -> Any:
    if file.suffix != ".zst":
        return file.open("rb")
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd.open(file, "rb")


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
