"""What goes wrong over the steps of a run is named with its step, and opens its rollouts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.checks import scan
from rollscope.checks.check import Bound, Spot
from rollscope.checks.recorded import recorded
from rollscope.checks.registry import ours
from rollscope.checks.stepped import known_steps
from rollscope.checks.subject import Steps

CHECKS = {id: check for id, check in ours().items() if check.subject == "step"}
WRONG = 20
"""The step at which something goes wrong."""


def steps(size: int = 40, **series: Any) -> Steps:
    """A run that is as it should be, but for these numbers: a value, or a function of the step."""
    usual: dict[str, Any] = {
        "rollouts": 64, "scored": 64, "spread": 0.5, "range": 1.0, "top": 28, "length": 300.0,
        "reward": lambda n: 0.4 + 0.05 * (-1) ** n, "groups": 8, "dead": 1, "truncated": 2,
        "truncated_of": 64, "entropy": 0.5, "stale_of": 64, "stale:1": 64, "gap_weight": 1.0,
        "gap_square": 1.01, "gap_kl": 0.001, "gap_error": 1.01, "part:right": 0.4,
        "part:form": 0.3, "parts": 64,
    }  # fmt: skip
    rows = [
        {name: float(value(n) if callable(value) else value) for name, value in both.items()}
        for n in range(size)
        for both in [usual | series]
    ]
    return Steps("train", range(size), rows, {})


def later(value: float, usual: float, size: int = 1000) -> Any:
    return lambda n: value if WRONG <= n < WRONG + size else usual


PLANTED: dict[str, dict[str, Any]] = {
    "run.variance_collapse": {"spread": later(0.001, 0.5)},
    "run.reward_jump": {"reward": lambda n: 0.2 + 0.02 * (-1) ** n + 0.6 * (n >= WRONG)},
    "run.part_dominates": {"part:form": later(0.001, 0.3)},
    "run.ceiling": {"top": later(64, 28)},
    "run.dead_groups": {"dead": later(8, 1)},
    "run.length_drift": {"length": later(900.0, 300.0)},
    "run.entropy_collapse": {"entropy": later(0.001, 0.5)},
    "run.gap": {"gap_error": later(1.2, 1.01)},
    "run.errors": {"error:tool": later(30, 0)},
    "run.truncation": {"truncated": later(40, 2)},
    "run.staleness": {"stale:1": later(0, 64), "stale:9": later(64, 0)},
}
ALIKE: dict[str, dict[str, Any]] = {
    "run.variance_collapse": {"spread": lambda n: 0.5 - n / 100},
    "run.reward_jump": {"reward": lambda n: 0.1 + 0.02 * n + 0.05 * (-1) ** n},
    "run.part_dominates": {"part:form": 0.001},
    "run.ceiling": {"top": later(64, 28, size=1)},
    "run.dead_groups": {"dead": later(4, 1)},
    "run.length_drift": {"length": lambda n: 300.0 + 2 * n},
    "run.entropy_collapse": {"entropy": lambda n: 0.5 * 0.97**n},
    "run.gap": {"gap_error": later(1.04, 1.01)},
    "run.errors": {"error:tool": 12},
    "run.truncation": {"truncated": 20},
    "run.staleness": {"stale:1": 0, "stale:8": 64},
}


def answered(id: str, run: Steps) -> list[Spot] | None:
    check = CHECKS[id]
    return Bound(check, {p.name: p.default for p in check.parameters}).answer(run)


@pytest.mark.parametrize("id", PLANTED)
def test_an_alarm_names_the_step_at_which_it_began_and_only_once(id: str) -> None:
    (spot,) = answered(id, steps(**PLANTED[id])) or []
    assert spot.step is not None and WRONG <= spot.step < WRONG + 6
    assert str(spot.step) in spot.query and spot.text
    for known in range(spot.step + 1, 40):
        cut = answered(id, steps(known, **PLANTED[id])) or []
        assert [s.step for s in cut] == [spot.step], "more steps do not move it"


@pytest.mark.parametrize("id", ALIKE)
def test_what_only_looks_like_it_is_no_alarm(id: str) -> None:
    assert answered(id, steps(**ALIKE[id])) == []
    for other in CHECKS:
        assert answered(other, steps()) == [], "a run that is as it should be"
    assert answered(id, Steps("train", range(40), [{} for _ in range(40)], {})) is None


def test_trouble_that_comes_back_is_told_again() -> None:
    twice = lambda n: 8 if n in range(15, 20) or n in range(45, 50) else 1  # noqa: E731
    assert len(answered("run.dead_groups", steps(70, dead=twice)) or []) == 2


def test_the_trainers_own_limit_of_staleness_wins() -> None:
    late = steps(**{"stale:1": 0, "stale:3": 64})
    assert answered("run.staleness", late) == []
    (spot,) = answered("run.staleness", late._replace(algorithm={"staleness": 2})) or []
    assert spot.query.endswith("staleness:>2")


def test_every_check_of_steps_is_planted() -> None:
    assert CHECKS.keys() == PLANTED.keys() | {"steps.hole", "steps.short"}
    assert PLANTED.keys() == ALIKE.keys()


def log(run: rollscope.Run, step: int, *, tasks: int = 4, size: int = 4, **about: Any) -> None:
    """A step of some groups, with half of the rewards 1."""
    tokens = Tokens([1, 2], logprob=[-0.5, -1.5], train_logprob=[-0.5, -1.0])
    for task in range(tasks):
        for i in range(size):
            user = Message(role="user", content="?")
            said = Message(role="assistant", content="ab", sampled=True, tokens=tokens)
            kept = {"reward": float(i % 2), "rewards": {"a": 1.0, "b": float(i)}, **about}
            run.log(Rollout(step=step, task=f"t{task}", index=i, split="train",
                            messages=[user, said], **kept))  # fmt: skip


def test_the_numbers_of_a_step_come_from_its_rollouts(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        log(run, 1, trained_step=3, truncated=False)
        log(run, 2, tasks=2, reward=1.0, error=rollscope.model.Error(kind="tool", text="no"))
    store = rollscope.open(own_store)
    scan(store)
    (found,) = known_steps(store, ("p", "r"), is_live=False)
    one, two = found.rows
    assert (found.split, [*found.numbers]) == ("train", [1, 2])
    assert (one["rollouts"], one["reward"], one["top"]) == (16, 0.5, 8)
    assert one["spread"] == pytest.approx(0.5)
    assert (one["groups"], one["dead"], two["groups"], two["dead"]) == (4, 0, 2, 2)
    assert (one["stale:2"], one["stale_of"], one["truncated_of"]) == (16, 16, 16)
    assert (one["part:a"], one["part:b"], one["parts"]) == (1.0, 1.5, 16)
    assert (two["error:tool"], "truncated_of" in two, "stale_of" in two) == (8, False, False)
    assert one["entropy"] == pytest.approx(1.0), "no entropy: the mean of -logprob stands for it"
    assert one["gap_kl"] == pytest.approx(-0.25)


def test_alarms_are_findings_of_steps_and_open_their_rollouts(own_store: Path) -> None:
    draw = random.Random(0)
    with rollscope.init(project="p", run="it's") as run:
        for step in range(30):
            if step != 22:
                cut = 0.8 if step >= 15 else 0.0
                for _ in range(2):
                    log(run, step, tasks=2, truncated=draw.random() < cut)
    store = rollscope.open(own_store)
    scan(store)
    found = {f.check: f for f in store.findings() if f.subject == "step"}
    hole, cut_off = found["steps.hole"], found["run.truncation"]
    assert (hole.step, hole.split, hole.rollout, hole.run) == (23, "train", None, "it's")
    assert cut_off.step is not None and 15 <= cut_off.step < 24
    rows = [*store.rollouts(cut_off.query or "", limit=None)]
    assert rows and all(row.truncated and row.step <= cut_off.step for row in rows)
    (count,) = store.findings().of("run.truncation").counts()
    assert (count.found, count.clear, count.unobserved, count.unlooked) == (1, 28, 0, 0)
    (count,) = store.findings("step:0..9").of("run.truncation").counts()
    assert (count.found, count.clear) == (0, 10)
    assert [*store.findings("step:0..9").of("run.truncation")] == []
    before = set((own_store / "p").glob("*/derived/*"))
    assert scan(store).findings == 0
    assert set((own_store / "p").glob("*/derived/*")) == before, "nothing is new"


def test_the_last_step_of_a_running_run_is_judged_when_it_is_whole(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        for step in range(6):
            log(run, step)
        log(run, 6, tasks=1)
        run.flush()
        store = rollscope.open(own_store)
        (found,) = known_steps(store, ("p", "r"), is_live=True)
        assert [*found.numbers] == [0, 1, 2, 3, 4, 5]
        scan(store)
        assert [*store.findings().of("steps.short")] == []
    scan(store)
    assert [f.step for f in store.findings().of("steps.short")] == [6]


def test_the_doctor_tells_of_steps(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        for step in (0, 1, 2, 3, 4, 6, 7):
            log(run, step)
    store = rollscope.open(own_store)
    scan(store)
    (told,) = [f for f in recorded(store) if f.text.startswith("steps.hole")]
    assert told.level == "error" and "step 5 is missing between steps 4 and 6" in told.text
