"""What a watcher saw is converted and logged, on a thread of its own."""

import functools
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollscope import capture
from rollscope.adapters import _later
from rollscope.adapters._later import Later, weight
from rollscope.adapters._record import Recorder, converted
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


# -- what waits is bounded ---------------------------------------------------------------


class Gate:
    """Work that keeps the thread busy until it is opened."""

    def __init__(self, later: Later) -> None:
        self._begun, self._open = threading.Event(), threading.Event()
        later(self._wait)
        assert self._begun.wait(60)

    def _wait(self) -> None:
        self._begun.set()
        assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()


def test_work_that_waits_is_bounded_by_the_queue_and_what_finds_no_room_is_counted(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROLLSCOPE_QUEUE", "1MB")
    done: list[int] = []
    ended: list[int] = []
    ids = [7] * 50_000  # 400 kB

    def note(n: int, ids: list[int]) -> None:
        done.append(n)

    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        gate = Gate(later)
        for n in range(5):
            later(note, n, ids, rollouts=8)
        later(note, 9, ids, rollouts=1, instead=functools.partial(ended.append, 9))
        gate.open()
        later.drain()
        assert (done, ended) == ([0, 1], [9])
        assert run.counters.dropped == {"queue full": 24}
        assert run.counters.dropped_other == {"queue full": 1}
        later(done.append, 5, rollouts=8)  # there is room again
        gate = Gate(later)
        later(done.append, 6, holds=[ids] * 9, rollouts=8)  # more than the queue: one is taken
        later(run.annotate, key="k", reward=1.0)
        gate.open()
        later.drain()
        assert done == [0, 1, 5, 6]
        assert run.counters.dropped_other == {"queue full": 2}
    (told,) = {r.getMessage() for r in caplog.records}
    assert "the queue (1 MB) is full, because converting is too slow" in told


class Rests(threading.Event):
    """Notes how long each rest may be, and whether it was cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float | None, bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        is_short = super().wait(timeout)
        self.seen.append((timeout, is_short))
        return is_short


def test_the_thread_rests_beside_training_but_not_while_somebody_waits(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_later, "PATIENCE", 300.0)  # on a busy machine the work itself takes longer
    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        rests = later._hurry = Rests()

        def work(until_hurried: bool) -> None:
            until = time.thread_time() + 0.02
            while time.thread_time() < until or (until_hurried and not rests.is_set()):
                pass

        later(work, False)
        later._last.result(60)  # type: ignore[union-attr]
        ((length, is_short),) = rests.seen
        assert length is not None and 0.6 <= length < 300 and not is_short
        later(work, True)
        later(work, False)
        later.drain()
        assert all(is_short for _, is_short in rests.seen[1:])


def test_weight_is_about_the_memory_that_is_held() -> None:
    np = pytest.importorskip("numpy")
    assert weight([1.5] * 1000) == weight([None] * 1000) == 8050
    assert weight([np.int64(3)] * 1000) == 8050
    assert weight(np.zeros(1000, np.float32)) == 4000
    nested = {"a": [[1] * 1000, (True,) * 1000], "b": SimpleNamespace(c=[0] * 1000)}
    assert 24_000 < weight(nested) < 25_000
    assert 1000 <= weight([{"role": "user", "content": "x" * 1000}] * 3) // 3 < 1300
    assert weight(object()) == weight(None) == 50
