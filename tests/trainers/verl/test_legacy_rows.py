"""The legacy trainer has no names for its rows, and sorts them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import verl.trainer.ppo.ray_trainer as ray_trainer
from driving import run_legacy
from verl.trainer.ppo.core_algos import AdvantageEstimator
from world import Engine, Grader, SameAgain, dataset_rows, legacy_batch, make_config, stored

import rollscope
from rollscope.adapters.verl import attach, trainer_legacy


class Noisy(Grader):
    """Gives equal answers different rewards, one after the other."""

    rewards: Sequence[float] = ()

    async def remote(self, data: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.calls = getattr(self, "calls", 0) + 1
        reward = self.rewards[(self.calls - 1) % len(self.rewards)]
        return {"reward_score": reward, "reward_extra_info": {}}


def train(
    config: Any, order: list[int], change: Any = None, columns: Any = None
) -> list[tuple[Any, Any]]:
    """Generate, sort the rows, compute advantages, update. Reward and advantage of each row."""
    columns = columns or {**dataset_rows(1, len(order)), "priority": list(range(len(order)))}
    _, _, output, _ = run_legacy(config, columns, engine=SameAgain)
    batch = legacy_batch(columns)
    manager = SimpleNamespace(config=config, rollout_config=config.actor_rollout_ref.rollout)
    trainer_legacy._note(manager, batch, output)
    batch.meta_info.pop("global_steps")
    batch.non_tensor_batch.pop("__do_sample__", None)
    for name in set(batch.non_tensor_batch) & set(output.non_tensor_batch):
        batch.non_tensor_batch.pop(name)
    batch = batch.union(output)[order]
    batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = batch.batch[
        "rm_scores"
    ]
    if change is not None:
        change(batch)
    done = ray_trainer.compute_advantage(
        batch, adv_estimator=AdvantageEstimator.GRPO, config=config.algorithm
    )
    trainer = SimpleNamespace(global_steps=3)
    watcher = trainer_legacy._update_actor(trainer, batch)
    next(watcher)
    next(watcher, None)
    rewards = done.batch["rm_scores"].sum(-1).tolist()
    advantages = [
        row[mask > 0][0].item()
        for row, mask in zip(done.batch["advantages"], done.batch["response_mask"], strict=True)
    ]
    return list(zip(rewards, advantages, strict=True))


def test_equal_siblings_have_the_advantages_of_their_own_rewards(
    model: Path, own_store: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Noisy, "rewards", (1.0, 0.0, 0.0, 0.5))
    monkeypatch.setattr("driving.Grader", Noisy)
    config = make_config(model, "actor_rollout_ref.rollout.n=4")
    with rollscope.init(project="p", run="r"):
        attach(config)
        theirs = dict(train(config, [2, 3, 0, 1]))
    found = stored(own_store)
    assert Counter(r.reward for r in found) == {1.0: 1, 0.0: 2, 0.5: 1}
    assert all(r.advantage == pytest.approx(theirs[r.reward]) for r in found)
    assert {(r.fate, r.trained_step) for r in found} == {("trained", 3)}


def test_what_differs_between_siblings_that_nobody_can_tell_apart_is_missing(
    model: Path, own_store: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Noisy, "rewards", (1.0,))
    monkeypatch.setattr("driving.Grader", Noisy)
    config = make_config(model)

    def change(batch: Any) -> None:
        batch.batch["old_log_probs"] = torch.zeros_like(batch.batch["rm_scores"])
        batch.batch["old_log_probs"][1] = -1.0
        batch.batch["ref_log_prob"] = torch.zeros_like(batch.batch["rm_scores"]) - 2

    with rollscope.init(project="p", run="r"):
        attach(config)
        train(config, [1, 0], change)
    for rollout in stored(own_store):
        streams = {name for m in rollout.messages for name, _ in m.tokens.arrays()}
        assert "ref_logprob" in streams and "train_logprob" not in streams
        assert rollout.advantage is not None and rollout.fate == "trained"


@pytest.mark.parametrize("n", [1, 2])
def test_the_baseline_of_remax_has_a_place_of_its_own_and_is_not_trained_on(
    n: int, model: Path, own_store: Path
) -> None:
    config = make_config(model, f"actor_rollout_ref.rollout.n={n}", "algorithm.adv_estimator=remax")
    sampled, baseline = dataset_rows(2, n), dataset_rows(2, 1)
    columns = {name: [*values, *baseline[name]] for name, values in sampled.items()}
    columns["priority"] = list(range(2 * n + 2))
    columns["__do_sample__"] = [True] * (2 * n) + [False] * 2
    with rollscope.init(project="p", run="r"):
        attach(config)
        run_legacy(config, columns, engine=Engine)
    found = stored(own_store)
    assert len({(r.group, r.index) for r in found}) == len(found) == 2 * n + 2
    marked = [r for r in found if r.meta.get("baseline") == "REMAX"]
    assert {(r.group, r.index) for r in marked} == {("uid-0", n), ("uid-1", n)}
    assert {r.fate for r in marked} == {"dropped"}
    assert {r.fate for r in found if r not in marked} == {"scored"}
    assert {r.sampling["temperature"] for r in marked} == {0}
    assert (
        all(isinstance(r.index, int) for r in found)
        and np.isfinite([r.reward for r in found]).all()
    )
