"""slime's debug rollouts (`--save-debug-rollout-data`).

slime writes them as pickles. Reading a pickle runs any code in it, so they are not read. If you
trust them, one line turns them into JSON lines, and those are read.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...model import Rollout
from ...model.problem import Problem
from .._lines import first_record, records
from .convert import FIELDS, convert

_CONVERSION = (
    'python -c "import json, sys, torch; d = torch.load(sys.argv[1], weights_only=False); '
    "[print(json.dumps({**s, 'step': d['rollout_id']}, "
    "default=lambda v: v.tolist() if hasattr(v, 'tolist') else str(v))) for s in d['samples']]\""
)


def recognise(path: str | Path) -> bool:
    """A debug rollout of slime (pickled, or turned into JSON lines), or a directory of them."""
    with contextlib.suppress(OSError, IndexError):
        file = _files(Path(path))[0]
        return (
            _is_pickle(file) or {"response_length", "tokens", "status"} <= first_record(file).keys()
        )
    return False


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """Every rollout; a pickle is a problem that says what to type."""
    for file in _files(Path(path)):
        if _is_pickle(file):
            command = f"{_CONVERSION} {file} > {file.with_suffix('.jsonl')}"
            yield Problem(
                file,
                None,
                "this is a pickle, and reading one runs the code inside it. If you trust it, "
                f"type: {command}",
            )
        else:
            yield from _read_lines(file)


def _read_lines(file: Path) -> Iterator[Rollout | Problem]:
    split_name = "eval" if "eval" in file.stem else "train"
    steps: dict[int | None, list[Any]] = {}
    for record in records(file):
        if isinstance(record, Problem):
            yield record
        else:
            sample = SimpleNamespace(**{k: record.get(k, v) for k, v in FIELDS.items()})
            steps.setdefault(record.get("step"), []).append(sample)
    for step, samples in steps.items():
        problems: list[str] = []
        yield from convert(samples, step=step, split_name=split_name, problems=problems)
        yield from (Problem(file, None, text) for text in problems)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.suffix in (".pt", ".jsonl") or _is_pickle(p))


def _is_pickle(file: Path) -> bool:
    """What torch.save writes, recognised without loading it."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, KeyError, StopIteration):
        if file.is_file() and zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                data = archive.read(name)
            return b"samples" in data and b"rollout_id" in data
    return False
