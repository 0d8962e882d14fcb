"""Rollouts are forwarded by a process of their own, each once, and nothing else waits for it."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from pathlib import Path

import pytest

from rollscope import Rollout, cli

from . import notebook
from .conftest import begin, findings, rollouts, run_dir, sent, wait_complete, wait_for

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
    assert ("facts that it cannot take" in findings(own_store)) is not can


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


def test_the_last_line_tells_how_far_it_is(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLSCOPE_QUIET", "0")
    with begin(book) as run:
        run.log(rollouts(1))
    wait_complete(own_store)
    assert "forwarded: notebook: " in capsys.readouterr().err


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
