"""What lies in a store, as the store's own reader gives it back: facts folded in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollscope import capture
from rollscope.capture.problems import problems
from rollscope.model import Rollout
from rollscope.store.read.reader import Reader


class Stored:
    """All rollouts of a store; facts whose rollout never showed up; metrics; names of runs."""

    def __init__(self, root: Path) -> None:
        run = capture.active()
        if run is not None:
            run.finish()
        with Reader(root) as reader:
            sql = reader.cursor()
            ids = [
                row[0] for row in sql.execute('SELECT id FROM rollouts ORDER BY "time"').fetchall()
            ]
            found = [reader.get(id) for id in ids]
            self.rollouts = [rollout for rollout in found if rollout is not None]
            assert len(self.rollouts) == len(set(ids)) == len(ids), "a rollout is there twice"
            self.orphans = sql.execute(
                "SELECT rollout, name FROM facts WHERE rollout NOT IN (SELECT id FROM rollouts)"
            ).fetchall()
            self.metrics: dict[int, dict[str, float]] = {}
            rows = sql.execute("SELECT step, name, value FROM metrics").fetchall()
            for step, name, value in rows:
                self.metrics.setdefault(step, {})[name] = value
            self.repeated = len(rows) - sum(len(values) for values in self.metrics.values())
            """Numbers that stand there twice."""
            self.projects = {(run.project, run.run) for run in reader.runs()}

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self.rollouts)

    def __len__(self) -> int:
        return len(self.rollouts)


def flat(rollout: Rollout, stream: str = "ids") -> list[Any]:
    """All tokens of a rollout, or one stream of them with None where it is not known."""
    out: list[Any] = []
    for message in rollout.messages:
        tokens = message.tokens
        if tokens is None:
            continue
        values = tokens.ids if stream == "ids" else tokens.streams.get(stream)
        out += values if values is not None else [None] * len(tokens)
    return out


def written(rollout: Rollout) -> list[str]:
    """What the policy said, message by message."""
    return [str(m.content) for m in rollout.messages if m.sampled]


def complaints() -> list[str]:
    """Everything that was reported in this process, in words."""
    return [problem.text for problem in problems.list({})]
