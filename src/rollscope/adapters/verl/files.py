"""What verl writes itself: `trainer.rollout_data_dir` and `trainer.validation_data_dir`.

One file a step, `<step>.jsonl`, one row a line: `input`, `output`, `gts`, `score`, `step`, the
reward's extras, and `uid` = `{uid}_{session}_{output}` (v1) or `request_id` (legacy). The text
was decoded without special tokens, so turns can no longer be told apart: the prompt is one
message of unknown role, the response one message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...model import Message, Rollout, prompt_task
from ...model.problem import Problem
from .._lines import first_record, records

_OWN = frozenset({"input", "output", "gts", "score", "step", "uid", "request_id"})
_SESSION = re.compile(r"(?P<uid>.+)_(?P<session>\d+)_(?P<output>\d+)")


def recognise(path: str | Path) -> bool:
    """Is this one of verl's dumps, or a directory of them?"""
    files = _files(Path(path))
    first = first_record(files[0]) if files else {}
    return {"input", "output", "score", "step"} <= first.keys()


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """Every rollout of a file, or of all files of a directory in order of step."""
    for file in _files(Path(path)):
        for session, rows in itertools.groupby(_rows(file), key=_session):
            if session is not None:
                yield _rollout([row for row in rows if isinstance(row, dict)], file)
                continue
            for row in rows:
                yield _rollout([row], file) if isinstance(row, dict) else row


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = [p for p in path.rglob("*.jsonl") if p.stem.isdecimal()]
    return sorted(found, key=lambda p: (p.parent, int(p.stem)))


def _rows(file: Path) -> Iterator[dict[str, Any] | Problem]:
    for number, row in enumerate(records(file), 1):
        if isinstance(row, dict) and "output" not in row:
            yield Problem(file, number, "no row of a verl dump: it has no 'output'")
        else:
            yield row if isinstance(row, Problem) else {**row, "": number}


def _session(row: dict[str, Any] | Problem) -> str | None:
    """Rows of one agent loop stand together: all but the last number of their uid is equal."""
    if isinstance(row, Problem):
        return None
    found = _SESSION.fullmatch(str(row.get("uid", "")))
    return f"{found['uid']}_{found['session']}" if found else None


def _rollout(rows: list[dict[str, Any]], file: Path) -> Rollout:
    last, split = rows[-1], _split(file)
    found = _SESSION.fullmatch(str(last.get("uid", "")))
    step, task = last.get("step"), prompt_task(str(rows[0].get("input") or ""))
    extras = {k: v for k, v in last.items() if k and k not in _OWN and v is not None}
    numbers = {k: float(v) for k, v in extras.items() if isinstance(v, (int, float))}
    rollout = Rollout(
        key=f"{split}/{step}/{file.parent.name}/{last.get('uid') or last['']}",
        step=step if isinstance(step, int) else None,
        split=split,
        task=task,
        # Without ids: what was asked with the same words at the same step.
        group=found["uid"] if found else f"{step}/{task}",
        index=int(found["session"]) if found else None,
        reward=last["score"] if isinstance(last.get("score"), (int, float)) else None,
        rewards=numbers,
        reference=last.get("gts"),
        meta={k: v for k, v in extras.items() if k not in numbers},
    )
    if last.get("request_id") is not None:
        rollout.meta["request_id"] = last["request_id"]
    for row in rows:
        begins = -1 if rollout.messages else None
        rollout.messages += [
            Message(role="unknown", content=row.get("input"), sampled=False, parent=begins),
            Message(role="assistant", content=row["output"]),
        ]
    rollout.fate = None if rollout.reward is None else "scored"
    return rollout


def _split(file: Path) -> str | None:
    """The dump does not say which it is; the name of its directory usually does."""
    words = re.split(r"[^a-z]+", file.parent.name.lower())
    if {"val", "validation", "eval", "test"} & set(words):
        return "eval"
    return "train" if {"train", "training", "rollout", "rollouts"} & set(words) else None
