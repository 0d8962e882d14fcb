"""What a watcher saw is converted and logged, on a thread of its own."""

import os
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rollscope import capture
from rollscope.adapters._record import Later, Recorder, converted
from rollscope.model import Rollout
from rollscope.store.read.reader import Reader


def test_work_is_done_in_order_and_before_the_run_ends(own_store: Path) -> None:
    done: list[int] = []
    gate = threading.Event()
    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        later(gate.wait)
        for n in range(100):
            later(done.append, n)
        assert done == []
        gate.set()
    assert done == list(range(100))


def test_what_raises_does_not_stop_what_follows(own_store: Path) -> None:
    done: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError("ours")

    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        later(broken)
        later(done.append, 1)
        later.drain()
        assert done == [1]


def test_an_adapter_has_one_thread_for_a_run(own_store: Path) -> None:
    with capture.init(project="p", run="a") as run:
        later = Later.of("test", run)
        assert Later.of("test", run) is later
        assert Later.of("other", run) is not later
    with capture.init(project="p", run="b") as other:
        assert Later.of("test", other) is not later


def test_the_child_of_a_fork_has_a_thread_of_its_own(own_store: Path) -> None:
    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        later(run.log, Rollout(key="parent"))
        later.drain()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                later(run.log, Rollout(key="child"))
                run.finish()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert keys(own_store) == ["child", "parent"]


def test_problems_of_a_conversion_are_told_even_when_it_fails(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def convert(rows: list[int], *, step: int, problems: list[str]) -> list[int]:
        problems += [f"odd at {step}"] * 2
        return [1 // row for row in rows]

    assert converted("test", convert, [1], step=3) == [1]
    with pytest.raises(ZeroDivisionError):
        converted("test", convert, [0], step=4)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["rollscope: adapter test: odd at 3", "rollscope: adapter test: odd at 4"]


# -- one trainer, from attaching to the rollouts ---------------------------------------


class Trainer:
    def step(self, batch: list[str]) -> int:
        return len(batch)


def convert(batch: list[str], *, problems: list[str]) -> list[Rollout]:
    return [Rollout(key=key) for key in batch]


class Watching(Recorder):
    def step(self, batch: list[str]) -> Generator[None, Any, None]:
        yield
        self.log(convert, list(batch))


def attach(trainer: Any, run: str = "r") -> bool:
    recorder = Watching("test", trainer)
    watchers = {"step": recorder.step}
    fits = recorder.fits(watchers, "Trainer", "1.2", supported="Trainer 1")
    return fits and recorder.attach("p", run)


def finish() -> None:
    run = capture.active()
    assert run is not None
    run.finish()


def keys(store: Path) -> list[str]:
    with Reader(store) as reader:
        found = reader.cursor().execute("SELECT key FROM rollouts ORDER BY key").fetchall()
    return [key for (key,) in found]


def test_attaching_twice_records_once(own_store: Path) -> None:
    trainer = Trainer()
    assert attach(trainer) and not attach(trainer)
    watched = trainer.step
    trainer.step = lambda batch: watched(batch)  # type: ignore[method-assign]
    assert not attach(trainer)
    assert trainer.step(["a", "b"]) == 2
    finish()
    assert keys(own_store) == ["a", "b"]


def test_a_trainer_whose_run_is_over_can_be_attached_again(own_store: Path) -> None:
    trainer = Trainer()
    for run in "ab":
        assert attach(trainer, run)
        trainer.step([f"of {run}"])
        finish()
    assert keys(own_store) == ["of a", "of b"]
    assert sorted(path.name for path in own_store.glob("p/*")) == ["a", "b"]


def test_a_trainer_without_the_function_is_left_alone_and_begins_no_run(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Other: ...

    other = Other()
    assert not attach(other)
    assert vars(other) == {} and capture.active() is None
    (text,) = [record.getMessage() for record in caplog.records]
    assert "Trainer 1.2: Other has no step; nothing is recorded. Supported: Trainer 1" in text


def test_off_means_untouched(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    trainer = Trainer()
    assert not attach(trainer)
    assert vars(trainer) == {} and not own_store.exists()
