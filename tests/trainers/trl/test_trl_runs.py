"""Trainings and their runs: sweeps, notebooks, scripts that run again; and what interrupts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stored import Stored, flat
from trl import GRPOTrainer
from world import NAMES_PROJECT, PROJECT, Rewards, trainer

import rollscope
from rollscope.adapters import trl as adapter

pytestmark = pytest.mark.usefixtures("strict")


def made(tmp_path: Path, **changes: Any) -> Any:
    return trainer(tmp_path, Rewards(), **{"max_steps": 1, **changes})


def shown(*trainers: Any) -> Counter[tuple[int, ...]]:
    """What the models of these trainers were shown and wrote."""
    return Counter(tuple(p + w) for t in trainers for p, w in t.model.notes)


def kept(one: Any) -> Counter[tuple[int, ...]]:
    """What is known of a batch that was never handed on: before 0.24, not the prompt's tokens."""
    knows_prompt = hasattr(GRPOTrainer, "_generate")
    return Counter(tuple(p + w if knows_prompt else w) for p, w in one.model.notes)


def by_run(store: Path) -> dict[str, Counter[tuple[int, ...]]]:
    rollscope.finish()
    found: dict[str, Counter[tuple[int, ...]]] = {}
    for rollout in Stored(store):
        found.setdefault(str(rollout.run), Counter())[tuple(flat(rollout))] += 1
    return found


@pytest.mark.parametrize("at_once", [False, True])
def test_a_sweep_is_a_run_for_each_name(own_store: Path, tmp_path: Path, at_once: bool) -> None:
    trainers = [made(tmp_path, seed=seed) for seed in (1, 2)]
    for seed, one in enumerate(trainers):
        adapter.attach(one, project="sweep", run=f"seed-{seed}")
        if not at_once:
            one.train()
    for one in trainers if at_once else ():
        one.train()
    found = by_run(own_store)
    assert found == {f"seed-{n}": shown(one) for n, one in enumerate(trainers)}


def test_names_of_the_trainer_make_runs_too(own_store: Path, tmp_path: Path) -> None:
    trainers = [made(tmp_path, seed=n, output_dir=str(tmp_path / f"out-{n}")) for n in (1, 2)]
    for one in trainers:
        adapter.attach(one).train()
    assert by_run(own_store) == {f"out-{n}": shown(one) for n, one in enumerate(trainers, 1)}


def test_a_cell_that_runs_again_makes_another_run(own_store: Path, tmp_path: Path) -> None:
    """Each training has the steps 1 to n: in one run, the second would replace the first."""
    trainers = []
    for seed in (1, 2):
        trainers.append(adapter.attach(made(tmp_path, seed=seed)))
        trainers[-1].train()
    rollscope.finish()
    trainers.append(adapter.attach(made(tmp_path, seed=3)))
    trainers[-1].train()
    names = ("my-run", "my-run-2", "my-run-3")
    assert by_run(own_store) == {n: shown(t) for n, t in zip(names, trainers, strict=True)}


def test_a_trainer_that_trains_again_makes_another_run(own_store: Path, tmp_path: Path) -> None:
    one = adapter.attach(made(tmp_path))
    one.train()
    first = shown(one)
    one.train()
    assert by_run(own_store) == {"my-run": first, "my-run-2": shown(one) - first}


def test_trainings_in_a_run_of_ones_own_are_told_apart(own_store: Path, tmp_path: Path) -> None:
    trainers = [made(tmp_path, seed=seed) for seed in (1, 2)]
    with rollscope.init(project="mine", run="all"):
        for one in trainers:
            adapter.attach(one).train()
    stored = Stored(own_store)
    assert Counter(tuple(flat(r)) for r in stored) == shown(*trainers)
    assert stored.projects == {("mine", "all")} and stored.orphans == []
    groups = Counter(r.group for r in stored)
    assert len(groups) == 2 and set(groups.values()) == {4}
    assert {r.fate for r in stored} == {"trained"}


def test_a_training_that_is_resumed_goes_on_in_its_run(own_store: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "save_only_model": False}
    first = adapter.attach(made(tmp_path, max_steps=2, **settings))
    first.train()
    second = adapter.attach(made(tmp_path, max_steps=4, **settings))
    second.train(resume_from_checkpoint=True)
    rollscope.finish()
    stored = Stored(own_store)
    assert stored.projects == {(PROJECT, "my-run")}
    assert Counter(r.step for r in stored) == {1: 4, 2: 4, 3: 4, 4: 4}
    assert Counter(tuple(flat(r)) for r in stored) == shown(first, second)


def test_what_is_evaluated_before_the_training_belongs_to_it(
    own_store: Path, tmp_path: Path
) -> None:
    one = adapter.attach(made(tmp_path, eval_dataset=made(tmp_path).train_dataset))
    one.evaluate()
    one.train()
    one.evaluate()
    rollscope.finish()
    stored = Stored(own_store)
    assert stored.projects == {(PROJECT, "my-run")}
    assert Counter(r.split for r in stored) == {"train": 4, "eval": 64}


def test_a_script_that_runs_again_makes_another_run(own_store: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from world import Rewards, trainer\n"
        "from rollscope.adapters import trl\n"
        "trl.attach(trainer(Path(sys.argv[1]), Rewards(), max_steps=1)).train()"
    )
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            check=True,
        )
    found = by_run(own_store)
    assert {run: sum(rollouts.values()) for run, rollouts in found.items()} == {
        "my-run": 4, "my-run-2": 4,
    }  # fmt: skip


@pytest.mark.parametrize("given", [None, "huggingface", "math"])
def test_the_project_has_a_name_that_somebody_gave(
    own_store: Path, tmp_path: Path, given: str | None
) -> None:
    one = made(tmp_path, **({"project": given or "huggingface"} if NAMES_PROJECT else {}))
    adapter.attach(one, project=given).train()
    assert Stored(own_store).projects == {(given or "trl", "my-run")}


@pytest.mark.parametrize("error", [ZeroDivisionError("no such score"), KeyboardInterrupt()])
def test_a_reward_function_that_does_not_return(
    own_store: Path, tmp_path: Path, error: BaseException
) -> None:
    """It raises, or somebody presses Ctrl-C in it: what was generated is kept."""

    def broken(completions: Any, **_: Any) -> list[float]:
        raise error

    one = adapter.attach(made(tmp_path, reward_funcs=[broken], reward_weights=[1.0]))
    with pytest.raises(type(error)):
        one.train()
    stored = Stored(own_store)
    assert Counter(tuple(flat(r)) for r in stored) == kept(one) and len(stored) == 4
    for rollout in stored:
        assert rollout.fate == "failed" and rollout.reward is None
        assert rollout.error is not None
        assert rollout.error.type == type(error).__name__
        assert rollout.error.kind == ("grader" if isinstance(error, Exception) else None)
        assert [m.content for m in rollout.messages][:2] == ["Be brief.", "say h"]


def test_what_fails_after_the_rewards_loses_none_of_them(own_store: Path, tmp_path: Path) -> None:
    class Failing(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            super()._generate_and_score_completions(inputs)
            raise MemoryError("out of memory")

    one = adapter.attach(trainer(tmp_path, Rewards(), Failing))
    with pytest.raises(MemoryError):
        one.train()
    stored = Stored(own_store)
    assert Counter(tuple(flat(r)) for r in stored) == kept(one) and len(stored) == 4
    assert {(r.fate, r.error) for r in stored} == {("scored", None)}
    assert all(r.reward is not None and r.advantage is None for r in stored)
