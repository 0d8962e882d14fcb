"""A sink for tests: another package's, found by its entry point, that writes down each call.

It can fail in every way that a back end can, told by files beside its notebook, so that a test
changes it while it runs in the forwarding process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rollscope import Rollout
from rollscope.sinks import Metric, Sink


class Notebook(Sink):
    OPTIONS: ClassVar = {"path": "the folder of the notebook"}

    @property
    def folder(self) -> Path:
        return Path(self.options["path"])

    @classmethod
    def hints(cls) -> Mapping[str, str]:
        found = os.environ.get("NOTEBOOK_OPENED")
        return {"page": found} if found else {}

    def open(self) -> str:
        self._misbehave("open")
        self._write("open", {"page": self.target.hints.get("page"), "pid": os.getpid()})
        return f"the notebook of {self.target.project}/{self.target.run}"

    def send(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self._misbehave("send", rollout)
            self._write(
                "send",
                {
                    "id": rollout.id,
                    "step": rollout.step,
                    "task": rollout.task,
                    "reward": rollout.reward,
                    "messages": len(rollout.messages),
                    "meta": rollout.meta,
                },
            )
        self._misbehave("sent")

    def update(self, rollout: Rollout) -> bool:
        self._misbehave("update")
        about = {"reward": rollout.reward, "fate": rollout.fate}
        self._write("update", {"id": rollout.id, **about, "labels": rollout.meta.get("labels")})
        return not (self.folder / "no-updates").exists()

    @property
    def wants_metrics(self) -> bool:
        return (self.folder / "metrics").exists()

    def send_metrics(self, metrics: Sequence[Metric]) -> None:
        self._misbehave("send_metrics")
        self._write("metrics", {"points": [(m.name, m.value, m.step) for m in metrics]})

    def holds(self, ids: Collection[str]) -> set[str]:
        self._write("holds", {"ids": sorted(ids)})
        sent = {line["id"] for line in read(self.folder) if line["call"] == "send"}
        return sent & set(ids)

    def close(self) -> None:
        self._write("close", {})

    def _write(self, call: str, values: Mapping[str, object]) -> None:
        line = json.dumps({"call": call, **values}) + "\n"
        fd = os.open(self.folder / "calls.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(fd, line.encode())
        os.close(fd)

    def _misbehave(self, call: str, rollout: Rollout | None = None) -> None:
        slow = self.folder / "slow"
        if slow.exists():
            time.sleep(float(slow.read_text()))
        for how in ("raise", "hang", "die", "import"):
            told = self.folder / f"{how}-in-{call}"
            if not told.exists():
                continue
            only = told.read_text()
            if only and (rollout is None or rollout.task != only):
                continue
            if how == "raise":
                raise ConnectionError(f"{call}: nobody answers")
            if how == "import":
                raise ModuleNotFoundError(
                    "No module named 'notebook_server'", name="notebook_server"
                )
            if how == "die":
                os._exit(3)
            time.sleep(3600)


def read(folder: Path) -> list[dict[str, object]]:
    """Every call that was written down, in order; not one that is just being written."""
    file = folder / "calls.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
