"""The adapter only looks: TRL's training is the same with it, without it, and when it is broken."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import trl
from stored import Stored
from world import Rewards, rows, trainer

from rollscope import capture
from rollscope.adapters import trl as adapter
from rollscope.adapters.trl import hook

pytestmark = pytest.mark.usefixtures("strict")


def end_state(made: Any) -> list[Any]:
    weights = {name: w.clone() for name, w in made.model.state_dict().items()}
    chance = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())
    optimizer = [dict(state) for state in made.optimizer.state_dict()["state"].values()]
    return [weights, chance, optimizer, made.model.notes]


def assert_same(one: list[Any], other: list[Any]) -> None:
    for name, weight in one[0].items():
        assert torch.equal(weight, other[0][name]), name
    assert torch.equal(one[1][0], other[1][0]) and one[1][1:] == other[1][1:]
    for mine, theirs in zip(one[2], other[2], strict=True):
        assert all(torch.equal(mine[k], theirs[k]) for k in mine)
    assert one[3] == other[3]


def run_once(tmp_path: Path, attached: bool) -> tuple[list[Any], Rewards]:
    rewards = Rewards()
    made = trainer(
        tmp_path,
        rewards,
        max_steps=5,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        eval_dataset=rows(2),
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
    )
    if attached:
        adapter.attach(made)
    made.train()
    return end_state(made), rewards


def test_training_ends_bit_for_bit_the_same_with_and_without(
    own_store: Path, tmp_path: Path
) -> None:
    without, seen_without = run_once(tmp_path / "without", attached=False)
    assert not own_store.exists()
    with_it, seen_with = run_once(tmp_path / "with", attached=True)
    assert_same(without, with_it)
    assert seen_without.given == seen_with.given
    assert len(list(Stored(own_store))) == len(with_it[3]) > 0


@pytest.mark.parametrize("broken", ["convert", "log", "annotate", "metrics", "join"])
def test_a_broken_adapter_leaves_training_as_it_is(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLSCOPE_STRICT")
    without, _ = run_once(tmp_path / "without", attached=False)

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    where: Any = {"convert": hook, "join": capture}.get(broken, capture.Run)
    monkeypatch.setattr(where, broken, fail)
    with_it, _ = run_once(tmp_path / "with", attached=True)
    assert_same(without, with_it)


def test_what_goes_through_is_the_trainers_own(tmp_path: Path) -> None:
    rewards = Rewards()
    made = trainer(tmp_path, rewards)
    original = made._generate_and_score_completions
    returned = []

    def generate(inputs: Any) -> Any:
        before = copy.deepcopy(inputs)
        output = original(inputs)
        returned.append((inputs, before, output, {k: v.clone() for k, v in output.items()}))
        return output

    made._generate_and_score_completions = generate
    adapter.attach(made)
    seen = []
    wrapped = made._generate_and_score_completions
    made._generate_and_score_completions = lambda inputs: seen.append(wrapped(inputs)) or seen[-1]
    made.train()
    for (inputs, before, output, clone), got in zip(returned, seen, strict=True):
        assert inputs == before
        assert got is output and output.keys() == clone.keys()
        assert all(torch.equal(output[k], clone[k]) for k in clone)


def test_off_means_the_methods_are_the_originals(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    made = trainer(tmp_path, Rewards())
    callbacks = list(made.callback_handler.callbacks)
    adapter.attach(made)
    assert "_calculate_rewards" not in vars(made)
    assert "_generate_and_score_completions" not in vars(made)
    assert made.callback_handler.callbacks == callbacks
    assert not own_store.exists()


def test_attaching_twice_records_once(own_store: Path, tmp_path: Path) -> None:
    made = trainer(tmp_path, Rewards())
    adapter.attach(adapter.attach(made))
    made.train()
    assert len(list(Stored(own_store))) == len(made.model.notes)


def test_a_trainer_without_the_seam_is_told_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Other:
        pass

    with caplog.at_level("WARNING", logger="rollscope"):
        adapter.attach(Other())
    assert (
        "Other has no _calculate_rewards" in caplog.text and f"trl {trl.__version__}" in caplog.text
    )
