"""JSON lines, one rollout per line. The default format, in and out.

Two shapes are read, and may be mixed:

- Rollscope's own: an object with the fields of `Rollout`, as `rollscope export jsonl` writes.
- Chat: `{"messages": [...], "reward": 1.0, ...}` with OpenAI-style messages, or `prompt` (text
  or messages) and `completion` / `response`. Keys that are not fields of a rollout go to `meta`.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from ..model import Rollout
from ..model.problem import Problem
from ._body import ANSWER_KEYS, MESSAGE_KEYS, decode
from ._encode import encode as encode
from ._export import LineCount
from ._files import opened as _open


def recognise(path: Path) -> bool:
    """A text file whose first line is an object with messages, or a prompt and an answer."""
    if not path.is_file() or path.name.removesuffix(".gz").rpartition(".")[2] not in (
        "jsonl",
        "ndjson",
        "json",
    ):
        return False
    with contextlib.suppress(OSError, ValueError, EOFError):
        with _open(path) as file:
            first = _decoded(file.readline())
        return isinstance(first, dict) and (
            any(k in first for k in MESSAGE_KEYS)
            or ("prompt" in first and any(k in first for k in ANSWER_KEYS))
        )
    return False


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every line as a rollout; a bad line is reported and left out."""
    with _open(path) as file:
        for number in itertools.count(1):
            try:
                line = file.readline()
            except (OSError, EOFError) as error:
                yield Problem(path, number, f"the file cannot be read further: {error}")
                return
            if not line:
                return
            if line.strip():
                yield _line(path, number, line)


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> LineCount:
    """One line per rollout, in the form that `read` takes."""
    count = 0
    for rollout in rollouts:
        out.write(encode(rollout) + b"\n")
        count += 1
    return LineCount(count)


def _line(path: Path, number: int, line: bytes) -> Rollout | Problem:
    try:
        body = _decoded(line)
        if not isinstance(body, dict):
            return Problem(path, number, f"expected an object, found {line[:60]!r}")
        return decode(body)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Problem(path, number, f"{error}")


def _decoded(line: bytes) -> Any:
    """The line's value. Python writes NaN and Infinity; some files have a byte order mark."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        try:
            return json.loads(line.removeprefix(codecs.BOM_UTF8))
        except ValueError:
            raise ValueError(str(error)) from None
