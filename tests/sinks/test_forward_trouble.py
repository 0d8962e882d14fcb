"""Forwarding when the other system, its library or the file system does not do what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout, cli
from rollscope.sinks import lock
from rollscope.sinks import state as states
from rollscope.sinks.process import Forwarding
from rollscope.store.read.reader import Reader

from .conftest import (
    begin,
    findings,
    rollouts,
    run_dir,
    sent,
    stop_forwarding,
    wait_complete,
    wait_for,
)


def test_a_failing_back_end_is_retried_and_told(own_store: Path, book: Path) -> None:
    (book / "raise-in-send").touch()
    with begin(book) as run:
        ids = run.log(rollouts(1))
        wait_for(lambda: (s := states.read(run.directory, "notebook")) and s.failures >= 2)
        said = findings(own_store)
        assert "send: ConnectionError: send: nobody answers" in said
        assert "tried again in" in said
        (book / "raise-in-send").unlink()
        wait_for(lambda: len(sent(book)) == 4, "success after failures")
    state = wait_complete(own_store)
    assert sorted(sent(book)) == sorted(ids)
    assert state.counts.failed >= 2
    assert "nobody answers" not in findings(own_store)


def test_a_missing_library_says_what_to_install(own_store: Path, book: Path) -> None:
    (book / "import-in-open").touch()
    with begin(book) as run:
        run.log(rollouts(1))
        wait_for(lambda: (s := states.read(run.directory, "notebook")) and s.failures)
        assert "pip install notebook_server" in findings(own_store)
        (book / "import-in-open").unlink()
    wait_complete(own_store)
    assert len(sent(book)) == 4


def test_one_rollout_that_is_refused_does_not_hold_up_the_others(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    (book / "raise-in-send").write_text("q1")
    with begin(book) as run:
        run.log([Rollout(task=f"q{n}", step=1, reward=1.0) for n in range(3)])
        wait_for(lambda: len(set(sent(book))) == 2, "the others")
        for n in range(3, 6):
            run.log(Rollout(task=f"q{n}", step=1, reward=1.0))
            wait_for(lambda n=n: len(set(sent(book))) == n)  # type: ignore[misc]
        wait_for(lambda: (s := states.read(run.directory, "notebook")) and s.counts.gave_up == 1)
    wait_complete(own_store)
    assert "it refused 1 rollout for good; the last time it said: send: Conn" in findings(own_store)


@pytest.mark.parametrize("how", ["die", "hang"])
def test_a_sink_that_dies_or_hangs_harms_nobody_and_another_process_goes_on(
    own_store: Path, book: Path, how: str
) -> None:
    (book / f"{how}-in-send").touch()
    with begin(book, "timeout=5") as run:
        ids = run.log(rollouts(1))
        wait_for(lambda: (s := states.read(run.directory, "notebook")) and s.counts.failed)
        state = states.read(run.directory, "notebook")
        assert state is not None
        assert "the forwarding process ended inside this call" in str(state.error)
        assert run.flush()
        (book / f"{how}-in-send").unlink()
        wait_for(lambda: len(sent(book)) == 4, "the next process")
    wait_complete(own_store)
    assert sorted(sent(book)) == sorted(ids)
    with Reader(own_store) as reader:
        found = reader.connection.execute("SELECT id FROM rollouts").fetchall()
    assert {id for (id,) in found} == set(ids)


def test_a_slow_back_end_does_not_hold_up_the_end_of_the_program(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0.5")
    (book / "slow").write_text("3600")
    with begin(book) as run:
        ids = run.log(rollouts(1))
    wait_for(lambda: lock.is_held(run_dir(own_store), "notebook"), "what goes on without us")
    with Reader(own_store) as reader:
        assert len(reader.connection.execute("SELECT id FROM rollouts").fetchall()) == len(ids)
    stop_forwarding(run_dir(own_store))


def test_where_there_are_no_locks_nothing_is_forwarded_and_that_is_told(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with begin(book) as run:
        run.log(rollouts(1))
    assert sent(book) == []
    assert "rollscope export notebook" in findings(own_store)


def test_one_sinks_trouble_does_not_hold_up_another(own_store: Path, book: Path) -> None:
    other = book / "other"
    other.mkdir()
    (book / "die-in-send").touch()
    sinks = [f"notebook:path={book}", f"diary:path={other}"]
    with rollscope.init(project="p", run="r", sinks=sinks) as run:
        ids = run.log(rollouts(1))
        wait_for(lambda: len(sent(other)) == 4, "the other one")
        (book / "die-in-send").unlink()
    wait_complete(own_store, "diary")
    wait_complete(own_store)
    assert sorted(sent(other)) == sorted(sent(book)) == sorted(ids)


def test_after_the_end_it_gives_up_and_an_export_sends_the_rest(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (book / "raise-in-open").touch()
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    monkeypatch.setattr("rollscope.sinks.follower.Follower._start", lambda *_: None)
    with begin(book) as run:
        ids = run.log(rollouts(1))
    monkeypatch.setattr("rollscope.sinks.process.GIVE_UP", 0.0)
    monkeypatch.setattr("rollscope.sinks.send.LONGEST_WAIT", 0.1)
    Forwarding(run.directory, "notebook").run()
    said = findings(own_store)
    assert "sink notebook: 4 are not sent, and no process sends them" in said
    assert "rollscope export notebook project:p run:r" in said
    (book / "raise-in-open").unlink()
    assert cli.main(["export", f"notebook:path={book}", "--dir", str(own_store)]) == 0
    assert sorted(sent(book)) == sorted(ids)
    assert "are not sent" not in findings(own_store)
