"""Another package's sink, installed where the cluster finds it: writes ids into a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from rollscope import Rollout
from rollscope.sinks import Sink


class Paper(Sink):
    OPTIONS: ClassVar = {"path": "the file", "colour": "of the ink"}

    def open(self) -> str:
        return self.options["path"]

    def send(self, rollouts: Sequence[Rollout]) -> None:
        with Path(self.options["path"]).open("a") as file:
            file.writelines(f"{rollout.id}\n" for rollout in rollouts)

    def update(self, rollout: Rollout) -> bool:
        return True

    def holds(self, ids: Collection[str]) -> set[str]:
        return set()


def hush(text: str) -> str:
    """A redactor that a run names as `paper:hush`."""
    return text.replace("hush-hush", "[hushed]")


def install(site: Path) -> None:
    """Make the entry points `paper` and `scroll`, in a folder for `PYTHONPATH`."""
    info = site / "paper_sink-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-sink\nVersion: 1.0\n")
    points = "[rollscope.sinks]\npaper = paper:Paper\nscroll = paper:Paper\n"
    (info / "entry_points.txt").write_text(points)
