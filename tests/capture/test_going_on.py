"""The writer's thread goes on, whatever it meets: what cannot be written is counted and told, and
once it can be written again, it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Rollout
from rollscope.checks import doctor
from rollscope.store.paths import LOG_ENDING
from rollscope.store.read.reader import Reader
from rollscope.store.seal.segment import seal
from rollscope.store.write.log import Entry, LogWriter

from . import children, reading
from .reading import wait_for


def tasks(store: Path) -> list[str]:
    return [rollout["task"] for rollout in reading.rollouts(store)]


def problems(store: Path) -> str:
    return "\n".join(p.text for info in reading.infos(store) for p in info.problems)


@pytest.mark.parametrize("id", [["a"], {"a": 1}, 7, 1.5, True, b"a", "\ud800", ""])
def test_an_id_of_any_kind_is_kept_as_text_and_what_comes_after_it_is_recorded(
    own_store: Path, id: Any
) -> None:
    run = rollscope.init()
    (told,) = run.log(Rollout(id=id, task="odd"))
    with run.rollout(id=id, task="live") as r:
        r.message("user", "hi")
    run.annotate(id, reward=1.0)
    run.annotate(told, advantage=2.0)
    run.log(Rollout(task="next"))
    run.finish()
    assert "next" in tasks(own_store)
    assert run.counters.dropped == run.counters.dropped_other == {}
    with Reader(own_store) as reader:
        odd = reader.get(told)
        assert odd is not None
        assert (odd.id, odd.reward, odd.advantage) == (told, 1.0, 2.0)


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("name", ["PROJECT", "RUN", "LAUNCH", "WORKER"])
def test_a_name_that_is_not_utf_8_is_recorded_readably_and_told(own_store: Path, name: str) -> None:
    code = """
        run = rollscope.init()
        run.log(Rollout(key="k", task="t"))
        run.annotate(key="k", reward=1.0)
        run.finish()
    """
    children.told(children.start(code, **{f"ROLLSCOPE_{name}": NOT_UTF_8}))
    (info,) = reading.infos(own_store)
    assert info.finished is not None
    assert getattr(info, name.lower()) == "caf\ufffd"
    assert "is not UTF-8" in problems(own_store)
    with Reader(own_store) as reader:
        (row,) = reader.connection.execute("SELECT task, reward FROM rollouts").fetchall()
        assert row == ("t", 1.0)


def test_a_store_in_a_directory_that_is_not_utf_8_is_written(tmp_path: Path) -> None:
    code = """
        import shutil
        run = rollscope.init()
        run.log(Rollout(task="t"))
        until(lambda: run.counters.recorded)
        shutil.rmtree(store)  # a problem whose text holds the path
        run.log(Rollout(task="u"))
        run.finish()
    """
    store = tmp_path / NOT_UTF_8
    children.told(children.start(code, ROLLSCOPE_DIR=str(store)))
    assert tasks(store) == ["u"]
    assert "was removed or moved while it was written" in problems(store)


def test_a_thread_that_did_not_start_is_started_by_the_next_call(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = threading.Thread.start, []

    def fail_twice(thread: threading.Thread) -> None:
        tries.append(thread)
        if len(tries) <= 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_twice)
    run = rollscope.init()
    run.log([Rollout(task="a"), Rollout(task="b")])
    run.log(Rollout(task="c"))
    wait_for(lambda: run.log(Rollout(task="more")) and run.counters.recorded > 3)
    run.finish()
    assert tasks(own_store)[:3] == ["a", "b", "c"]
    assert run.counters.dropped == {}
    assert "can't start new thread" in problems(own_store)


def test_a_thread_that_never_starts_leaves_the_writing_to_finish(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    run = rollscope.init()
    run.log(Rollout(task="a"))
    assert not run.flush(0.1), "it says so when it cannot"
    run.finish()
    assert tasks(own_store) == ["a"]
    assert reading.infos(own_store)[0].finished is not None


@pytest.mark.parametrize("part", ["", "*", "*/*", "*/*/live", "*/*/writers"])
def test_a_directory_replaced_by_a_file_is_told_and_written_to_once_the_file_is_gone(
    own_store: Path, part: str
) -> None:
    run = reading.quick_run(beat=0.05)
    run.log(Rollout(task="before"))
    wait_for(lambda: run.counters.recorded == 1)
    (path,) = own_store.glob(part) if part else [own_store]
    _replace(path)
    run.log(Rollout(task="meanwhile"))
    where = "heartbeat" if part.endswith("writers") else "recording"
    wait_for(lambda: run.counters and where in str(run._background.log.info.problems))
    path.unlink()
    run.log(Rollout(task="after"))
    run.finish()
    assert tasks(own_store)[-2:] == ["meanwhile", "after"]
    assert run.counters.dropped == {}
    (info,) = reading.infos(own_store)
    assert info.finished is not None


def test_a_store_that_stays_a_file_costs_what_was_logged_and_says_so(own_store: Path) -> None:
    run = rollscope.init()
    run.log(Rollout(task="before"))
    wait_for(lambda: run.counters.recorded == 1)
    _replace(own_store)
    run.log([Rollout(task="a"), Rollout(task="b")])
    run.finish()
    assert run.counters.dropped == {"cannot write": 2}


def test_a_store_that_is_moved_away_is_begun_anew_where_it_was(own_store: Path) -> None:
    run = reading.quick_run(beat=0.05)
    run.log(Rollout(task="before"))
    wait_for(lambda: run.counters.recorded == 1)
    moved = own_store.rename(own_store.with_name("moved"))
    wait_for(lambda: "was removed or moved" in problems(own_store))
    run.log(Rollout(task="after"))
    run.finish()
    assert tasks(moved) == ["before"]
    assert tasks(own_store) == ["after"]


def _replace(path: Path) -> None:
    """Put a file in the place of a directory."""
    old = path.rename(path.with_name("elsewhere"))
    path.write_text("not a directory")
    shutil.rmtree(old)


def test_an_error_that_nobody_foresaw_costs_only_the_entry_it_is_about(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = LogWriter._home

    def odd(writer: LogWriter, entry: Entry) -> Any:
        if b"poison" in entry.encode():
            raise ZeroDivisionError("odd")
        return home(writer, entry)

    monkeypatch.setattr(LogWriter, "_home", odd)
    run = rollscope.init()
    for n in range(50):
        run.log(Rollout(task="poison" if n == 20 else str(n)))
    run.log(Rollout(task="after"))
    run.finish()
    assert sorted(tasks(own_store)) == sorted([*(str(n) for n in range(50) if n != 20), "after"])
    assert run.counters.dropped == {"could not be written": 1}
    assert "ZeroDivisionError: odd" in problems(own_store)


@pytest.mark.parametrize("name", ["beat", "write"])
def test_errors_that_pass_are_told_and_nothing_is_lost(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole, broken = getattr(LogWriter, name), threading.Event()
    broken.set()

    def odd(*args: Any) -> Any:
        if broken.is_set():
            raise MemoryError("odd")
        return whole(*args)

    monkeypatch.setattr(LogWriter, name, odd)
    run = reading.quick_run(beat=0.05)
    run.log(Rollout(task="a"))
    wait_for(lambda: run.counters and "MemoryError" in str(run._background.log.info.problems))
    broken.clear()
    run.log(Rollout(task="b"))
    run.finish()
    assert tasks(own_store) == ["a", "b"]
    assert run.counters.dropped == {}
    assert "MemoryError: odd" in problems(own_store)


@pytest.mark.parametrize("sinks", ["", "otlp:endpoint=http://127.0.0.1:1"])
def test_writing_never_waits_for_the_start_of_another_process(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, sinks: str
) -> None:
    starting, may_start = threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        starting.set()
        assert may_start.wait(300)
        raise BlockingIOError("no processes left")

    monkeypatch.setattr(subprocess, "Popen", slow)
    monkeypatch.setenv("ROLLSCOPE_SINKS", sinks)
    run = reading.quick_run(beat=0.05, max_raw=1, seal=not sinks)
    for n in range(4):  # a log each
        run.log(Rollout(task=str(n)))
        assert run.flush(300)
    assert starting.wait(300), "a process is being started"
    run.log(Rollout(task="meanwhile"))
    assert run.flush(300)
    assert tasks(own_store) == ["0", "1", "2", "3", "meanwhile"]
    may_start.set()
    wait_for(lambda: "did not start (no processes left)" in problems(own_store))
    run.finish()


def test_a_torn_end_whose_content_was_written_again_is_no_error(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way, and a file that cannot be cut back."""
    run = rollscope.init()
    run.log(Rollout(task="before"))
    run.flush()
    (log,) = own_store.rglob("live/*.zst")
    write, truncate, failed = os.write, os.ftruncate, list[int]()

    def is_log(fd: int) -> bool:
        return os.path.samestat(os.fstat(fd), log.stat())

    def half(fd: int, data: Any) -> int:
        if not is_log(fd):
            return write(fd, data)
        if failed:
            raise OSError(5, "Input/output error")
        failed.append(fd)
        return write(fd, data[: len(data) // 2])

    def stuck(fd: int, size: int) -> None:
        if is_log(fd):
            raise OSError(5, "Input/output error")
        truncate(fd, size)

    monkeypatch.setattr("os.write", half)
    monkeypatch.setattr("os.ftruncate", stuck)
    run.log(Rollout(task="torn"))
    run.flush()
    run.finish()
    monkeypatch.undo()
    for name in own_store.rglob("live/*.zst"):
        seal(run.directory, name.name.removesuffix(LOG_ENDING))
    store = rollscope.open(own_store)
    assert sorted(row.task for row in store.rollouts()) == ["before", "torn"]
    assert any(unit.info.damaged for unit in store.reader.units), "the torn end is kept aside"
    assert [f for f in doctor.examine(store.reader) if f.level == "error"] == []
