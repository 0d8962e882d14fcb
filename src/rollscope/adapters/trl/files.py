"""What TRL writes itself: `completions/completions_*.parquet` (with `log_completions=True`).

The files hold the batch before each logging step: text, rewards and advantages, no tokens.
"""

from __future__ import annotations

import contextlib
import glob
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...model import Message, Rollout, prompt_task
from ...model.chat import from_chat
from ...model.problem import Problem


def recognise(path: str | Path) -> bool:
    """Is this a `completions_*.parquet` of TRL, or a directory that holds some?"""
    with contextlib.suppress(Exception):
        found = _files(Path(path))
        return bool(found) and {"step", "prompt", "completion", "advantage"} <= set(
            _columns(found[0])
        )
    return False


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """The rollouts in the file, or in all files below the directory, in order of step.

    The files do not say which columns are rewards: those that hold fractions are taken as
    such, all others go to `meta`. With one reward that is the total, too; with several the
    total is not known, because the weights are not in the file.
    """
    for file in _files(Path(path)):
        try:
            yield from _read_file(file)
        except Exception as error:  # of DuckDB: torn, or not TRL's columns
            yield Problem(file, None, f"not as TRL writes it: {error}")


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("completions_*.parquet"))


def _columns(file: Path) -> dict[str, str]:
    import duckdb

    found = duckdb.execute(
        "DESCRIBE SELECT * FROM read_parquet(?)", [glob.escape(str(file))]
    ).fetchall()
    return {row[0]: str(row[1]) for row in found}


def _read_file(file: Path) -> Iterator[Rollout]:
    import duckdb

    types = _columns(file)
    parts = [c for c, t in types.items() if t in ("DOUBLE", "FLOAT") and c != "advantage"]
    others = [c for c in types if c not in (*parts, "step", "prompt", "completion", "advantage")]
    result = duckdb.execute("SELECT * FROM read_parquet(?)", [glob.escape(str(file))])
    rows = [dict(zip(types, row, strict=True)) for row in result.fetchall()]
    places = _runs([row["prompt"] for row in rows])
    for i, row in enumerate(rows):
        rewards = {c: row[c] for c in parts if row[c] is not None and not math.isnan(row[c])}
        rollout = Rollout(
            key=f"{file.stem}/{i}",
            step=row["step"],
            split="train",
            task=prompt_task(prompt_text(row["prompt"])),
            messages=said(row["prompt"], row["completion"]),
            rewards=rewards,
            reward=next(iter(rewards.values())) if len(rewards) == len(parts) == 1 else None,
            advantage=row["advantage"],
            meta={c: row[c] for c in others if row[c] is not None},
        )
        if places is None:
            rollout.meta["unmatched"] = "rows with the same prompt do not make equal groups"
        else:
            rollout.group, rollout.index = f"{file.stem}/{places[i][0]}", places[i][1]
        yield rollout


def _runs(prompts: list[Any]) -> list[tuple[int, int]] | None:
    """(run, place in it) for runs of equal prompts, if they are all of the same length."""
    places: list[tuple[int, int]] = []
    for i, prompt in enumerate(prompts):
        same = i > 0 and prompt == prompts[i - 1]
        run, place = places[-1] if places else (-1, 0)
        places.append((run, place + 1) if same else (run + 1, 0))
    sizes = set(Counter(run for run, _ in places).values())
    return places if len(sizes) <= 1 else None


def said(prompt: Any, completion: Any) -> list[Message]:
    """A prompt and its completion, each a text or messages, without tokens."""
    messages = []
    for text, role, sampled in ((prompt, "unknown", False), (completion, "assistant", True)):
        for m in text if isinstance(text, list) else [{"role": role, "content": text}]:
            message = from_chat(m)
            message.sampled = sampled and message.role == "assistant"
            messages.append(message)
    return messages


def prompt_text(prompt: Any) -> str:
    """The prompt as one text: what a task without an id is known by."""
    if not isinstance(prompt, (list, tuple)):
        return str(prompt)
    return "\n".join(f"{m.get('role')}: {_plain(m.get('content'))}" for m in prompt)


def _plain(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(p.get("text") or "") for p in content if isinstance(p, Mapping))
