"""JSON lines, one rollout per line. The default format, in and out.

Two shapes are read, and may be mixed:

- Rollscope's own: an object with the fields of `Rollout`, as `rollscope export jsonl` writes.
- Chat: `{"messages": [...], "reward": 1.0, ...}` with OpenAI-style messages, or `prompt` (text
  or messages) and `completion` / `response`. Keys that are not fields of a rollout go to `meta`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from ..model import Rollout
from ..model.problem import Problem
from . import _files
from ._body import ANSWER_KEYS, MESSAGE_KEYS, Unsaid, described
from ._encode import encode as encode
from ._export import LineCount, line_each

_ENDINGS = (".jsonl", ".ndjson", ".json")


def recognise(path: Path) -> bool:
    """A text file whose first line is an object with messages, or a prompt and an answer."""
    first = _files.first_object(path, *_ENDINGS)
    return any(k in first for k in MESSAGE_KEYS) or (
        "prompt" in first and any(k in first for k in ANSWER_KEYS)
    )


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every line, or every item of a list, as a rollout; a bad one is reported and left out."""
    unsaid = Unsaid(path)
    for found in _files.values(path):
        if isinstance(found, Problem):
            yield found
            continue
        made = _made(path, found)
        if isinstance(made, Rollout):
            unsaid.look(made, found.place)
        yield made
    yield from unsaid.problems()


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> LineCount:
    """One line per rollout, in the form that `read` takes."""
    return line_each(rollouts, out, encode)


def _made(path: Path, entry: _files.Entry) -> Rollout | Problem:
    if not isinstance(entry.value, dict):
        return entry.problem(path, f"expected an object, found {entry.value!r:.60}")
    try:
        return described(entry.value)
    except (ValueError, TypeError, AttributeError) as error:
        return entry.problem(path, f"{error}")
