"""What tinker-cookbook's own `capture/` has kept: `capture.sqlite`, a row for each sample.

The rows of one trajectory (`traj_idx`) become one rollout, in the order in which they were written.
A row without it is a rollout of its own. There are tokens and no texts, and no rewards.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ...model import Rollout
from ...model.problem import Problem
from .._arrays import same_length
from .convert import Action, Conversation, Notes, Turn

NAME = "capture.sqlite"

_PLACE = ("run_id", "run_attempt", "split", "iteration", "group_idx", "traj_idx")
_COLUMNS = (
    *_PLACE, "cursor", "purpose", "policy_version", "created_at",
    "prompt_tokens", "sampled_tokens", "logprobs", "metadata",
)  # fmt: skip


class _Chunk(NamedTuple):
    tokens: list[int]


class _Observation(NamedTuple):
    chunks: list[_Chunk]


def database(path: Path) -> Path | None:
    """The database at this path, or in this folder."""
    file = path / NAME if path.is_dir() else path
    return file if file.name == NAME and file.is_file() else None


def read(file: Path) -> Iterator[Rollout | Problem]:
    """Its rollouts, run by run."""
    try:
        with contextlib.closing(_opened(file)) as db:
            rows = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM wire_rows ORDER BY "
                f"{', '.join(_PLACE)}, CASE WHEN traj_idx IS NULL THEN cursor END, cursor"
            )
            named = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
            for _, mine in groupby(named, key=_trajectory):
                yield from _read(file, [*mine])
    except sqlite3.Error as error:
        yield Problem(file, None, f"not as tinker-cookbook's capture writes it: {error}")


def _opened(file: Path) -> sqlite3.Connection:
    """Only to be read: its daemon may be writing."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _trajectory(row: Mapping[str, Any]) -> tuple[Any, ...]:
    alone = row["cursor"] if row["traj_idx"] is None else None
    return (*(row[name] for name in _PLACE), alone)


def _read(file: Path, rows: list[dict[str, Any]]) -> Iterator[Rollout | Problem]:
    first = rows[0]
    problems: list[str] = []
    try:
        yield _rollout(first, rows, problems)
    except (ValueError, TypeError, AttributeError) as error:
        yield Problem(file, None, f"sample {first['cursor']} cannot be read: {error!r}")
    for text in problems:
        yield Problem(file, None, f"sample {first['cursor']}: {text}")


def _rollout(
    first: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], problems: list[str]
) -> Rollout:
    conversation = Conversation(None, None, Notes(), problems)
    for row in rows:
        shown, wrote, given = (
            json.loads(row[name] or "null")
            for name in ("prompt_tokens", "sampled_tokens", "logprobs")
        )
        logprobs = same_length("logprobs", given, len(wrote or ()), problems)
        ob = _Observation([_Chunk(shown or [])])
        conversation.turn(Turn(ob, Action(wrote or [], logprobs)))
    version = str(first["policy_version"] or "")
    place = [str(first[name]) for name in _PLACE if first[name] is not None]
    known: dict[str, Any] = {name: first[name] for name in ("purpose", "run_attempt", "run_id")}
    if version and not version.isdecimal():
        known["policy_version"] = version
    is_grouped = first["group_idx"] is not None
    return Rollout(
        key="/".join(place if first["traj_idx"] is not None else [*place, str(first["cursor"])]),
        step=first["iteration"],
        split=first["split"],
        group="/".join(place[: len(place) - (first["traj_idx"] is not None)])
        if is_grouped
        else None,
        index=first["traj_idx"],
        policy_version=int(version) if version.isdecimal() else None,
        messages=conversation.messages,
        time=first["created_at"],
        fate="generated",
        meta={k: v for k, v in known.items() if v is not None}
        | (json.loads(first["metadata"] or "null") or {}),
    )
