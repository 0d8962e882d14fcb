"""Who forwards: killed, racing, begun and ended at odd moments; what the trainer opened."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from rollscope import cli
from rollscope.sinks import lock
from rollscope.sinks import state as states
from rollscope.sinks.process import Forwarding, requested
from rollscope.store.writers import WriterInfo, read_infos

from . import notebook
from .conftest import begin, rollouts, run_dir, sent, stop_forwarding, wait_complete, wait_for

# -- killed, and more than one ----------------------------------------------------------------


def test_killed_at_any_moment_nothing_is_lost_and_nothing_sent_twice(
    own_store: Path, book: Path
) -> None:
    """The writer lives on and starts the next process."""
    (book / "slow").write_text("0.02")
    chance = random.Random(3)
    ids: list[str] = []
    with begin(book) as run:
        for step in range(1, 4):
            ids += run.log(rollouts(step, tasks=8, each=4))
            wait_for(lambda: lock.is_held(run.directory, "notebook"), "a forwarding process")
            time.sleep(chance.uniform(0.3, 2.0))
            stop_forwarding(run.directory)
        (book / "slow").unlink()
        wait_for(lambda: len(set(sent(book))) == len(ids), "everything")
    state = wait_complete(own_store)
    assert Counter(sent(book)) == Counter(ids)
    assert state.counts.sent == len(ids)


def test_two_that_race_send_nothing_twice(own_store: Path, book: Path) -> None:
    import subprocess
    import sys

    (book / "slow").write_text("0.05")
    with begin(book) as run:
        ids = run.log(rollouts(1, tasks=4, each=4))
        command = [sys.executable, "-P", "-m", "rollscope.sinks", str(run.directory), "notebook"]
        racing = [subprocess.Popen(command) for _ in range(3)]
    wait_complete(own_store)
    for process in racing:
        assert process.wait(180) == 0
    assert Counter(sent(book)) == Counter(ids)


# -- what the trainer opened --------------------------------------------------------------------


def test_what_the_trainer_opened_reaches_the_forwarding_process(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTEBOOK_OPENED", "page 7")
    with begin(book) as run:
        run.log(rollouts(1))
    wait_complete(own_store)
    pages = [line["page"] for line in notebook.read(book) if line["call"] == "open"]
    assert pages[-1] == "page 7"


def test_the_newest_launch_says_what_is_asked_and_differences_are_told() -> None:
    def writer(launch: str, started: float, text: str, page: str | None) -> WriterInfo:
        return WriterInfo(
            writer=f"w{started}",
            project="p",
            run="r",
            launch=launch,
            host="h",
            pid=1,
            place="",
            started=started,
            forwarded_to=[text],
            hints={"otlp": {"page": page}} if page else {},
        )

    infos = [
        writer("old", 1, "otlp:viewer=a", "1"),
        writer("new", 3, "otlp:viewer=c", "4"),
        writer("new", 2, "otlp:viewer=b", "3"),
    ]
    found = requested(infos, "otlp")
    assert found is not None
    assert (str(found.spec), found.hints) == ("otlp:viewer=b", {"page": "3"})
    assert len(found.notes) == 2
    assert requested(infos, "trackio") is None


def test_what_the_trainer_opens_later_is_joined_without_a_failure(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(book) as run:
        ids = run.log(rollouts(1))
        wait_for(lambda: len(sent(book)) == 4)
        monkeypatch.setenv("NOTEBOOK_OPENED", "page 9")
        wait_for(lambda: "page 9" in str(read_infos(run.directory)), "the heartbeat")
        ids += run.log(rollouts(2))
        wait_for(lambda: len(sent(book)) == 8)
    state = wait_complete(own_store)
    pages = [line["page"] for line in notebook.read(book) if line["call"] == "open"]
    assert pages[-1] == "page 9"
    assert (state.counts.failed, state.error) == (0, None)
    assert Counter(sent(book)) == Counter(ids)


def test_a_run_that_is_removed_is_forwarded_no_more(own_store: Path, book: Path) -> None:
    with begin(book) as run:
        run.log(rollouts(1))
        wait_for(lambda: len(sent(book)) == 4)
        state = states.read(run.directory, "notebook")
        assert state is not None
        assert cli.main(["rm", "p/r", "--yes", "--dir", str(own_store)]) == 0
        wait_for(lambda: not _runs(state.pid), "the end of the process")


def _runs(pid: int) -> bool:
    """Does the process still run? One that ended stays listed until its parent looks."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_writer_that_begins_while_forwarding_ends_is_not_forgotten(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the lock held, starts nobody, and has ended before the lock is let go."""
    from rollscope.sinks import __main__ as program

    monkeypatch.setattr("rollscope.sinks.follower.Follower._start", lambda *_: None)
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    ids: list[str] = []

    def write() -> None:
        with begin(book) as run:
            ids.extend(run.log(rollouts(len(ids))))

    write()
    end = Forwarding._end

    def end_late(self: Forwarding) -> None:
        if len(ids) == 4:
            write()
        end(self)

    monkeypatch.setattr(Forwarding, "_end", end_late)
    program.main(run_dir(own_store), "notebook")
    assert len(ids) == 8
    assert sorted(sent(book)) == sorted(ids)
