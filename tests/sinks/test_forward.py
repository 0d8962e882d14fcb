"""Rollouts are forwarded by a process of their own, each once, and nothing else waits for it."""

from __future__ import annotations

import math
import multiprocessing
import random
import time
from collections import Counter
from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout, cli
from rollscope.checks import doctor
from rollscope.sinks import lock
from rollscope.sinks import state as states
from rollscope.sinks.process import Forwarding, asked
from rollscope.store.reader import Reader
from rollscope.store.writers import WriterInfo, read_infos

from . import notebook
from .conftest import run_dir, sent, stop_forwarding, wait_complete, wait_for


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


# -- once, whole, in time --------------------------------------------------------------------


def test_every_rollout_is_sent_once_and_whole(own_store: Path, book: Path) -> None:
    with begin(book) as run:
        ids = run.log(rollouts(1)) + run.log(rollouts(2))
    state = wait_complete(own_store)
    assert sorted(sent(book)) == sorted(ids)
    assert (state.counts.sent, state.counts.waiting, state.to) == (8, 0, "the notebook of p/r")
    calls = [line["call"] for line in notebook.read(book)]
    assert (calls[0], calls[-1]) == ("open", "close")
    assert {line["messages"] for line in notebook.read(book) if line["call"] == "send"} == {2}


def test_a_rollout_waits_for_its_reward_or_for_the_end_of_its_step(
    own_store: Path, book: Path
) -> None:
    with begin(book) as run:
        known = run.log(rollouts(1, tasks=1))
        unknown = run.log(rollouts(1, tasks=2, reward=None)[2:])
        wait_for(lambda: set(sent(book)) == set(known), "those with a reward")
        run.annotate(unknown[0], reward=0.5)
        wait_for(lambda: set(sent(book)) == {*known, unknown[0]}, "the one that got a reward")
        run.log(rollouts(2, tasks=1, reward=None))
        wait_for(lambda: set(sent(book)) == {*known, *unknown}, "the step that is over")
    state = wait_complete(own_store)
    assert state.counts.sent == 6


def test_one_that_is_still_going_on_is_not_sent(own_store: Path, book: Path) -> None:
    with begin(book) as run:
        with run.rollout(step=1, task="q", reward=1.0) as growing:
            growing.message("user", "?")
            done = run.log(rollouts(1, tasks=1))
            wait_for(lambda: set(sent(book)) == set(done))
            growing.message("assistant", "!")
        wait_for(lambda: len(sent(book)) == 3, "the one that ended")
    wait_complete(own_store)
    last = [line for line in notebook.read(book) if line["call"] == "send"][-1]
    assert (last["task"], last["messages"]) == ("q", 2)


@pytest.mark.parametrize("can", [True, False])
def test_later_facts_update_it_or_are_counted(own_store: Path, book: Path, can: bool) -> None:
    if not can:
        (book / "no-updates").touch()
    with begin(book) as run:
        ids = run.log(rollouts(1))
        wait_for(lambda: len(sent(book)) == 4)
        run.annotate(ids[0], reward=0.25, fate="trained", label="odd")
    state = wait_complete(own_store)
    updates = [line for line in notebook.read(book) if line["call"] == "update"]
    assert [(u["id"], u["reward"], u["fate"], u["labels"]) for u in updates] == [
        (ids[0], 0.25, "trained", ["odd"])
    ]
    assert (state.counts.updated, state.counts.not_updated) == ((1, 0) if can else (0, 1))
    assert ("later facts that it cannot take" in findings(own_store)) is not can


def test_a_restart_sends_only_what_is_new(own_store: Path, book: Path) -> None:
    with begin(book) as run:
        first = run.log(rollouts(1))
    wait_complete(own_store)
    with begin(book) as run:
        second = run.log([Rollout(task="other", step=2, reward=1.0)])
    wait_complete(own_store)
    assert Counter(sent(book)) == Counter([*first, *second])


def test_rollouts_that_a_restart_made_again_are_sent_from_both_launches_but_never_twice(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for launch in ("a", "b"):
        monkeypatch.setenv("ROLLSCOPE_LAUNCH", launch)
        with begin(book) as run:
            run.log(rollouts(1))
        wait_complete(own_store)
    assert len(sent(book)) == len(set(sent(book))) == 8


# -- caps --------------------------------------------------------------------------------------


def _work(book: Path, worker: int, steps: int) -> None:
    """One of several workers: of each group it makes one rollout."""
    with begin(book, "groups_per_step=2,seed=7", worker=f"w{worker}") as run:
        for step in range(1, steps + 1):
            run.log(
                [
                    Rollout(
                        key=f"{step}-{task}-{worker}",
                        step=step,
                        task=f"q{task}",
                        index=worker,
                        reward=1.0,
                    )
                    for task in range(6)
                ]
            )


def test_a_cap_is_exact_over_four_workers_and_groups_are_whole(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "one")
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_work, args=(book, n, 3)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    state = wait_complete(own_store)
    lines = [line for line in notebook.read(book) if line["call"] == "send"]
    groups = Counter((line["step"], line["task"]) for line in lines)
    assert set(groups.values()) == {4}
    assert Counter(step for step, _ in groups) == {1: 2, 2: 2, 3: 2}
    assert (state.counts.sent, state.counts.left_out) == (24, 48)
    assert "48 left out by the cap" in findings(own_store)


# -- trouble -----------------------------------------------------------------------------------


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
    assert "it refused 1 rollouts for good; the last time it said: send: Conn" in findings(
        own_store
    )


@pytest.mark.parametrize("how", ["die", "hang"])
def test_a_sink_that_dies_or_hangs_harms_nobody_and_another_process_goes_on(
    own_store: Path, book: Path, how: str
) -> None:
    (book / f"{how}-in-send").touch()
    with begin(book, "timeout=2") as run:
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
        assert process.wait(60) == 0
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


def test_the_last_line_tells_how_far_it_is(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLSCOPE_QUIET", "0")
    with begin(book) as run:
        run.log(rollouts(1))
    wait_complete(own_store)
    assert "forwarded: notebook: " in capsys.readouterr().err


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


def test_what_was_sent_is_not_sent_or_updated_again_when_the_store_moves_on(
    own_store: Path, book: Path
) -> None:
    """Logs become segments, segments are merged and facts folded: nothing has changed."""
    with begin(book) as run:
        ids = run.log(
            [
                Rollout(
                    step=1,
                    task=f"q{n}",
                    reward=[1.0, math.nan][n % 2],
                    rewards={"z": 1.0, "a": math.inf},
                    meta={"z": 1, "a": {"é": [1, 2.5, None]}},
                )
                for n in range(4)
            ]
        )
        run.annotate(ids[0], rewards={"m": 0.5}, meta={"b": 1}, label="odd", fate="trained")
    wait_complete(own_store)
    updates = [line for line in notebook.read(book) if line["call"] == "update"]
    assert cli.main(["compact", "--dir", str(own_store)]) == 0
    assert [*run_dir(own_store).glob("live/*")] == []
    with begin(book) as run:
        ids += run.log(Rollout(step=2, task="q", reward=1.0))
    wait_complete(own_store)
    assert Counter(sent(book)) == Counter(ids)
    assert [line for line in notebook.read(book) if line["call"] == "update"] == updates


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
    monkeypatch.setattr("rollscope.sinks.follow.Follower._start", lambda *_: None)
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
    found = asked(infos, "otlp")
    assert found is not None
    assert (str(found.spec), found.hints) == ("otlp:viewer=b", {"page": "3"})
    assert len(found.notes) == 2
    assert asked(infos, "trackio") is None


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

    monkeypatch.setattr("rollscope.sinks.follow.Follower._start", lambda *_: None)
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
