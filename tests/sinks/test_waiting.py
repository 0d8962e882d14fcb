"""A system that cannot change what it has gets a rollout when no more is expected of it."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope import Rollout
from rollscope.sinks.look import LATE_STEPS, Looker
from rollscope.store.read.reader import Reader

from . import notebook
from .conftest import begin, rollouts, run_dir, stop_forwarding, wait_complete, wait_for


class Watched:
    """A run, and what may be sent of it now."""

    def __init__(self, store: Path) -> None:
        self.run = rollscope.init(project="p", run="r")
        self._reader = Reader(store)
        self._looker = Looker(self._reader, "p", "r", None)

    def due(self, *, is_over: bool = False, can_update: bool = False) -> set[str]:
        self.run.flush()
        self._reader.refresh()
        return {id for id, _ in self._looker.look(None, is_over, can_update).new}

    def log(self, step: int | None, **fields: object) -> str:
        (id,) = self.run.log(Rollout(step=step, task="q", reward=1.0, **fields))  # type: ignore[arg-type]
        return id

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self.run.finish()
        self._reader.close()


def test_it_waits_for_the_step_and_for_the_fate(own_store: Path) -> None:
    with Watched(own_store) as watched:
        first = watched.log(1)
        assert watched.due(can_update=True) == {first}
        assert watched.due() == set(), "its step still goes on"
        watched.run.annotate(first, advantage=0.5, fate="trained")
        assert watched.due() == set()
        second = watched.log(2)
        assert watched.due() == {first}
        assert watched.due(is_over=True) == {first, second}


def test_an_asynchronous_trainer_may_learn_from_it_some_steps_later(own_store: Path) -> None:
    with Watched(own_store) as watched:
        ids = [watched.log(step, fate="generated") for step in range(5)]
        assert watched.due() == set()
        watched.run.annotate(ids[2], fate="dropped")
        watched.run.annotate(ids[0], fate="trained")
        assert watched.due() == {ids[0], ids[2]}
        ids += [watched.log(step) for step in range(5, LATE_STEPS + 2)]
        assert watched.due() == set(ids[:3]), "the fate of the second was never told"


def test_where_no_fates_are_told_only_the_step_is_waited_for(own_store: Path) -> None:
    with Watched(own_store) as watched:
        ids = [watched.log(step) for step in range(LATE_STEPS)]
        assert watched.due() == set(), "nobody knows yet whether fates come"
        ids.append(watched.log(LATE_STEPS))
        assert watched.due() == set(ids[:-1])


def test_a_split_that_nothing_is_learned_from_is_not_waited_for(own_store: Path) -> None:
    with Watched(own_store) as watched:
        train = [watched.log(step, fate="trained") for step in range(LATE_STEPS + 1)]
        examined = watched.log(LATE_STEPS, split="eval")
        assert watched.due() == set(train[:-1])
        train.append(watched.log(LATE_STEPS + 1))
        assert watched.due() == {*train[:-1], examined}


def test_without_a_step_only_the_reward_is_waited_for(own_store: Path) -> None:
    with Watched(own_store) as watched:
        id = watched.log(None)
        assert watched.due() == {id}


# -- metrics -----------------------------------------------------------------------------------


def told(book: Path) -> list[tuple[object, ...]]:
    calls = [line for line in notebook.read(book) if line["call"] == "metrics"]
    return [tuple(point) for line in calls for point in line["points"]]  # type: ignore[attr-defined]


def test_metrics_go_to_a_system_that_wants_them(own_store: Path, book: Path) -> None:
    (book / "metrics").touch()
    with begin(book) as run:
        run.log(rollouts(1))
        run.metrics(1, {"loss": 0.5})
        wait_for(lambda: told(book) == [("loss", 0.5, 1)], "the first")
        run.metrics(2, {"loss": 0.25, "kl": 0.0})
        run.metrics(None, {"tokens": 7})
    state = wait_complete(own_store)
    assert told(book) == [
        ("loss", 0.5, 1), ("kl", 0.0, 2), ("loss", 0.25, 2), ("tokens", 7.0, None),
    ]  # fmt: skip
    assert state.counts.metrics == 4


def test_metrics_that_came_when_nobody_forwarded_are_sent_later(
    own_store: Path, book: Path
) -> None:
    (book / "metrics").touch()
    with begin(book) as run:
        run.log(rollouts(1))
        wait_for(lambda: len(notebook.read(book)) == 5, "the rollouts")
        stop_forwarding(run_dir(own_store))
        run.metrics(1, {"loss": 0.5})
    wait_complete(own_store)
    assert told(book) == [("loss", 0.5, 1)]
