"""Writing logs by hand, as a writer does, for tests of the reading side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rollscope.model import Fact, Rollout, wire
from rollscope.model.schema import VERSION
from rollscope.store import frames, paths


def header(project: str, run: str, writer: str, launch: str, **more: object) -> bytes:
    return msgspec.json.encode(
        {
            "log": {
                "version": VERSION,
                "writer": writer,
                "project": project,
                "run": run,
                "launch": launch,
                "worker": "worker-0",
                "started": 1.0,
                **more,
            }
        }
    )


class LogFile:
    """One log, appended to frame by frame."""

    def __init__(
        self,
        root: Path,
        *,
        project: str = "p",
        run: str = "r",
        writer: str = "w",
        seq: int = 0,
        launch: str = "launch",
        **more: object,
    ) -> None:
        self.directory = paths.run_dir(root, project, run)
        paths.ensure_run(self.directory, project, run)
        self.name = paths.log_name(writer, seq)
        self.path = paths.log_path(self.directory, writer, seq)
        self.append([header(project, run, writer, launch, **more)])

    def append(self, lines: Iterable[bytes]) -> None:
        with self.path.open("ab") as file:
            file.write(frames.pack(lines))

    def log(self, *rollouts: Rollout, is_open: bool | None = None) -> None:
        self.append(wire.rollout_line(r, is_open=is_open).encode() for r in rollouts)

    def more(self, rollout: Rollout, first: int) -> None:
        """What an open rollout has grown by: its messages from number `first` on."""
        assert rollout.id is not None
        line = wire.more_line(rollout.id, first, rollout.messages[first:], rollout.spans)
        self.append([line.encode()])

    def facts(self, *facts: Fact) -> None:
        self.append([wire.facts_line(list(facts)).encode()])

    def metrics(self, step: int, values: dict[str, float], time: float = 1.0) -> None:
        self.append([wire.metrics_line(step, values, time).encode()])


def rollouts(count: int, prefix: str = "r", **fields: object) -> Sequence[Rollout]:
    """Small rollouts with a prompt and an answer."""
    from rollscope.model import Message

    return [
        Rollout(
            id=f"{prefix}{i}",
            **{  # type: ignore[arg-type]
                "step": i // 8,
                "task": f"q{i % 8}",
                "index": 0,
                "time": 100.0 + i,
                "reward": i / 10,
                **fields,
            },
            messages=[
                Message(role="user", content=f"question {i}"),
                Message(role="assistant", content=f"answer {i}", sampled=True),
            ],
        )
        for i in range(count)
    ]
