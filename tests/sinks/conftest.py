"""Another package with a sink, and runs that are forwarded by real processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.capture.setup import resolve
from rollscope.checks import doctor
from rollscope.sinks import lock
from rollscope.sinks import state as states
from rollscope.store import paths
from rollscope.store.read.reader import Reader
from rollscope.store.writers import process_start

from . import notebook


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a notebook; the sink `notebook` is installed, here and in children."""
    site = tmp_path / "site"
    info = site / "notebook_sink-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(notebook.__file__, site / "notebook_sink.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notebook-sink\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rollscope.sinks]\nnotebook = notebook_sink:Notebook\ndiary = notebook_sink:Notebook\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("ROLLSCOPE_QUIET", "1")
    monkeypatch.setattr("rollscope.capture.begin.resolve", _lively)
    folder = tmp_path / "book"
    folder.mkdir()
    yield folder
    sys.modules.pop("notebook_sink", None)


def _lively(*args: Any, **kwargs: Any) -> Any:
    """Heartbeats come faster than in earnest, so that nobody waits for them."""
    return resolve(*args, **kwargs)._replace(beat=0.2)


def run_dir(store: Path, project: str = "p", run: str = "r") -> Path:
    return paths.run_dir(store, project, run)


def wait_for(condition: Callable[[], Any], what: str = "", seconds: float = 600) -> Any:
    """Wait until `condition` gives something true."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"never came: {what or condition}"
        time.sleep(0.05)


def wait_complete(
    store: Path, name: str = "notebook", project: str = "p", run: str = "r"
) -> states.SinkState:
    """Wait until the forwarding process has ended with nothing left to do."""
    directory = run_dir(store, project, run)

    def done() -> states.SinkState | None:
        state = states.read(directory, name)
        writers = len([*(directory / "writers").glob("*.json")])
        is_over = state is not None and state.complete >= writers
        return state if is_over and not lock.is_held(directory, name) else None

    found: states.SinkState = wait_for(done, "the end of forwarding")
    return found


def sent(book: Path) -> list[Any]:
    """Ids in the order they were sent."""
    return [line["id"] for line in notebook.read(book) if line["call"] == "send"]


def stop_forwarding(directory: Path, name: str = "notebook") -> None:
    """End the forwarding process of a run, if there is one."""

    def is_stopped() -> bool:
        if not lock.is_held(directory, name):
            return True
        state = states.read(directory, name)  # the process may not have told its pid yet
        if state is not None and process_start(state.pid) == state.process_start:
            with suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGKILL)
        return False

    wait_for(is_stopped, "the end of the process")


def rollouts(step: int, tasks: int = 2, each: int = 2, reward: float | None = 1.0) -> list[Rollout]:
    return [
        Rollout(
            key=f"{step}-{task}-{index}",
            step=step,
            task=f"q{task}",
            index=index,
            reward=reward,
            messages=[Message(role="user", content="?"), Message(role="assistant", content="!")],
        )
        for task in range(tasks)
        for index in range(each)
    ]


def begin(book: Path, options: str = "", **more: str) -> rollscope.Run:
    extra = f",{options}" if options else ""
    return rollscope.init(project="p", run="r", sinks=[f"notebook:path={book}{extra}"], **more)  # type: ignore[arg-type]


def findings(store: Path) -> str:
    with Reader(store) as reader:
        return "\n".join(f"{f.level}: {f.text} {f.advice}" for f in doctor.examine(reader))
