"""A writer's own files: which log a rollout is in, when it ends, who wrote, who is gone."""

from __future__ import annotations

import collections
import os
import signal
import time
from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout
from rollscope.store import frames, writers

from . import children, reading
from .reading import quick_run, wait_for

STOPPED = """
    run = reading.quick_run(beat=0.1, silent=0.5)
    with run.rollout(task="open") as r:
        r.message("user", "before")
        run.log([Rollout(task=f"before-{n}") for n in range(20)])
        until(lambda: run.counters.recorded == 21)
        tell(ready=True)
        until(Path(sys.argv[1]).exists)
        run.log([Rollout(task=f"after-{n}") for n in range(20)])
        r.message("assistant", "after")
    run.finish()
"""


@pytest.mark.parametrize("removed", [True, False])
def test_a_writer_that_was_stopped_for_long_goes_on_in_a_new_log(
    own_store: Path, tmp_path: Path, removed: bool
) -> None:
    """Stopped long enough to look dead: its log is taken (sealed and removed, or only sealed)."""
    go = tmp_path / "go"
    process = children.start(STOPPED, str(go))
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.0)  # longer than it may be silent
    taken = list(own_store.rglob("live/*"))  # on a busy machine it may have begun a second one
    sealed = [log.read_bytes() for log in taken]
    if removed:
        for log in taken:
            log.rename(tmp_path / log.name)
    go.touch()
    os.kill(process.pid, signal.SIGCONT)
    children.told(process)
    if removed:  # put them where the reader of these tests looks
        for log in taken:
            (tmp_path / log.name).rename(log)
    assert [log.read_bytes() for log in taken] == sealed  # not a byte was added to what was taken
    found = collections.Counter(r["task"] for r in reading.rollouts(own_store))
    expected = [f"{when}-{n}" for when in ("before", "after") for n in range(20)]
    assert found == dict.fromkeys(["open", *expected], 1)
    (live,) = [r for r in reading.rollouts(own_store) if r["task"] == "open"]
    assert [m["content"] for m in live["messages"]] == ["before", "after"]
    assert not live["open"]


def test_a_writer_tells_the_end_of_every_log(own_store: Path) -> None:
    run = quick_run(max_raw=10_000)
    for n in range(3):
        run.log(Rollout(task=str(n), messages=[rollscope.Message(role="user", content="x" * 9999)]))
        run.flush()
    run.finish()
    (info,) = reading.infos(own_store)
    logs = (run.directory / "live").iterdir()
    assert info.ends == {path.name.partition(".")[0]: path.stat().st_size for path in logs}
    assert len(info.ends) == 3


def test_a_rollout_stays_in_the_log_it_began_in(own_store: Path) -> None:
    run = quick_run(max_raw=10_000)
    with run.rollout(task="long") as r:
        r.message("user", "first")
        for n in range(10):
            run.log(Rollout(task=f"{n}", meta={"text": "x" * 5_000}))
            wait_for(lambda n=n: run.counters.recorded == n + 2)
        r.message("assistant", "last")
    run.finish()
    logs = sorted(own_store.rglob("live/*"))
    assert len(logs) > 3
    holding = []
    for path in logs:
        text = b"".join(frame.data or b"" for frame in frames.scan(path))
        holding += [path] * (r._head.id.encode() in text)
    assert len(holding) == 1
    assert len(reading.rollouts(own_store)) == 11


def test_recording_pauses_when_the_disk_is_nearly_full_and_memory_stays_bounded(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROLLSCOPE_MIN_FREE", "1000000TB")
    monkeypatch.setenv("ROLLSCOPE_QUEUE", "100kB")
    run = rollscope.init(project="p", run="r")
    for n in range(100):
        run.log(Rollout(task=str(n), meta={"text": "x" * 10_000}))
        time.sleep(0.001)
    background = run._background
    assert background._put_bytes - background._done_bytes <= 100_000
    run.finish()
    assert reading.rollouts(own_store) == []
    (info,) = reading.infos(own_store)  # small enough to be written, so that it is told
    assert sum(info.counters.dropped.values()) == 100
    assert set(info.counters.dropped) <= {"disk nearly full", "queue full"}
    assert info.counters.dropped["disk nearly full"] >= 9
    assert "recording pauses" in caplog.text


@pytest.mark.parametrize(("asked", "mode"), [("", 0o700), ("0750", 0o750), ("2775", 0o2775)])
def test_nobody_else_may_look_into_the_store_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, mode: int
) -> None:
    monkeypatch.setenv("ROLLSCOPE_MODE", asked)
    monkeypatch.setenv("ROLLSCOPE_SEAL", "on")
    umask = os.umask(0o022)
    try:
        outside, store = tmp_path / "data", tmp_path / "data" / "store"
        with rollscope.init(project="p", run="r", dir=store) as run:
            run.log(Rollout(task="t"))
        wait_for(lambda: list(store.rglob("segments/*/rollouts.parquet")))
        made = [store, store / "p", store / "p/r"]
        made += [store / "p/r" / part for part in ("live", "segments", "merged", "writers")]
        assert {path.stat().st_mode & 0o7777 for path in made} == {mode}
        assert outside.stat().st_mode & 0o777 == 0o755, "what is not the store's is left alone"
        store.chmod(0o755)
        with rollscope.init(project="p", run="s", dir=store) as run:
            run.log(Rollout(task="t"))
        assert store.stat().st_mode & 0o777 == 0o755, "as somebody made it"
        assert (store / "p/s").stat().st_mode & 0o7777 == mode
    finally:
        os.umask(umask)


@pytest.mark.parametrize("asked", ["0500", "everybody", "99"])
def test_permissions_that_cannot_be_are_told_and_the_store_is_private(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("ROLLSCOPE_MODE", asked)
    with rollscope.init(project="p", run="r") as run:
        run.log(Rollout(task="t"))
    assert (own_store / "p").stat().st_mode & 0o777 == 0o700
    assert "ROLLSCOPE_MODE" in reading.infos(own_store)[0].problems[0].text


def test_a_writers_file_tells_who_wrote(own_store: Path) -> None:
    with rollscope.init(project="p", run="r", config={"lr": 1e-5}) as run:
        run.log(Rollout(task="t"))
    (info,) = reading.infos(own_store)
    assert (info.project, info.run, info.launch) == ("p", "r", run.launch)
    assert (info.pid, info.config) == (os.getpid(), {"lr": 1e-5})
    assert info.started <= (info.last_write or 0) <= (info.finished or 0)
    assert info.counters.raw_bytes > 0
    assert not writers.is_gone(info)
    info.process_start = "another"
    assert writers.is_gone(info)  # the pid was given again
    info.place = "another machine"
    assert not writers.is_gone(info)  # nobody here can tell


def test_a_heartbeat_that_stops_means_dead_on_the_observers_own_clock() -> None:
    info = writers.WriterInfo(
        writer="w", project="p", run="r", launch="l", host="h", pid=1, place="far", started=0.0
    )
    watch = writers.Watch(dead_after=0.2)
    assert not watch.is_dead(info)
    time.sleep(0.3)
    info.beat += 1
    assert not watch.is_dead(info)
    time.sleep(0.3)
    assert watch.is_dead(info)
