"""On a cluster that was started beforehand and knows nothing of Rollscope: verl's real managers,
workers and trainers as Ray actors and driver, the v1 trainer with the real TransferQueue.
Only the engine, the grader and the optimiser's step are not real."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from tensordict import TensorDict
from world import (
    Engine,
    Grader,
    dataset_rows,
    flat,
    legacy_batch,
    make_config,
    reward_of,
    v1_batch,
    wait_for,
)

import rollscope
from rollscope.adapters.verl import ending
from rollscope.model import Rollout
from rollscope.store import writers

WORKERS = "actor_rollout_ref.rollout.agent.num_workers=2"


def check(found: list[Rollout], engine: Engine) -> None:
    told = engine.conversations()
    by_ids = {tuple(flat(r)): r for r in found}
    assert len(found) == len(told) == len(by_ids) > 0
    for turns in told:
        rollout = by_ids[tuple(turns[-1]["prompt"] + turns[-1]["ids"])]
        assert [m.content for m in rollout.messages if m.sampled] == [t["text"] for t in turns]
        assert rollout.reward == reward_of(flat(rollout)[len(turns[0]["prompt"]) :])


class Optimiser:
    """The edge to the GPU workers: takes a batch and gives numbers back."""

    def update_actor(self, batch: Any) -> TensorDict:
        from verl.utils import tensordict_utils as tu

        output = TensorDict({}, batch_size=[])
        tu.assign_non_tensor(output, metrics={"mfu": 0.1, "loss": 0.5})
        return output


def test_legacy_trainer_records_in_actors_and_says_later_what_was_trained(
    driver: Path, model: Path, tmp_path: Path
) -> None:
    import verl.trainer.ppo.ray_trainer as module
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    config = make_config(model, WORKERS)
    trainer = object.__new__(module.RayPPOTrainer)  # its constructor wants GPU workers
    trainer.config, trainer.global_steps = config, 3
    trainer.actor_rollout_wg = Optimiser()
    engine = Engine(config, None)
    engine.record = tmp_path
    manager = AgentLoopManager.create(config, engine, None, [Grader()])

    prompts = legacy_batch(dataset_rows(3, 2))  # three rows for each worker: one group is cut
    output = manager.generate_sequences(prompts)
    found = wait_for(driver, lambda r: len(r) == 6 and all(x.fate == "scored" for x in r))
    check(found, engine)
    assert {(r.group, r.index) for r in found} == {
        (f"uid-{i}", j) for i in range(3) for j in (0, 1)
    }
    check_validation(manager, driver)
    infos = [json.loads(p.read_text()) for p in driver.glob("*/*/writers/*.json")]
    assert {(i["project"], i["run"]) for i in infos} == {("maths", "tiny")}
    assert len({i["launch"] for i in infos}) == 1
    assert len({i["pid"] for i in infos} - {os.getpid()}) == 2

    batch = legacy_batch(dataset_rows(3, 2)).union(output)
    batch.meta_info.pop("global_steps")  # in verl only the batch for generation has it
    batch.reorder(torch.tensor([5, 2, 0, 4, 1, 3]))  # as verl does to balance its workers
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"] - 1
    batch = module.compute_advantage(
        batch, adv_estimator=AdvantageEstimator.GRPO, config=config.algorithm
    )
    trainer._update_actor(batch)
    found = wait_for(driver, lambda r: all(x.fate == "trained" for x in r if x.split == "train"))
    found = [r for r in found if r.split == "train"]
    for rollout in found:
        group = [r.reward for r in found if r.group == rollout.group]
        if len(set(group)) > 1:
            assert (rollout.advantage > 0) == (rollout.reward == max(group))
        assert rollout.trained_step == 3
        sampled, trained = flat(rollout, "logprob"), flat(rollout, "train_logprob")
        assert [None if p is None else p - 1 for p in sampled] == pytest.approx(trained)


def check_validation(manager: Any, store: Path) -> None:
    """Three prompts for two workers: verl adds a copy of the first row and throws it away."""
    columns = dataset_rows(3, 1)
    padded = {name: [*values, values[0]] for name, values in columns.items()}
    manager.generate_sequences(legacy_batch(padded, validate=True))

    def is_told(found: list[Rollout]) -> bool:
        fates = [r.fate for r in found if r.split == "eval" and r.fate]
        return len(fates) == 4 and "dropped" in fates

    found = wait_for(store, is_told)
    dropped = [r for r in found if r.fate == "dropped"]
    assert [(r.group, r.split) for r in dropped] == [("uid-0", "eval")]


def test_v1_trainer_records_in_actors_and_says_later_what_was_trained_and_dropped(
    driver: Path, model: Path, tmp_path: Path
) -> None:
    import transfer_queue as tq
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls

    config = make_config(
        model,
        WORKERS,
        "data.train_batch_size=2",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=False",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )
    tq.init(config.transfer_queue)
    try:
        trainer = get_trainer_cls("sync")(config)
        trainer.global_steps, trainer.actor_rollout_wg = 5, Optimiser()
        engine = Engine(config, None)
        engine.record = tmp_path
        trainer.agent_loop_manager = AgentLoopManagerTQ.create(config, engine, None, [Grader()])
        trainer._submit_batch_to_rollout(v1_batch(dataset_rows(3, 1), step=5))
        buffer = trainer.replay_buffer
        buffer.poll_interval = 0.2
        found = wait_for(driver, lambda r: len(r) == 6 and all(x.fate == "scored" for x in r))
        check(found, engine)
        assert {(r.group, r.index, r.step) for r in found} == {
            (f"uid-{i}", j, 5) for i in range(3) for j in (0, 1)
        }

        buffer._sync_metadata_from_transfer_queue()
        buffer.filter_groups_metric = "reward"
        buffer._evict_terminal_groups(5, "train", (set(), {"uid-2"}, set(), Counter()))
        buffer.filter_groups_metric = None
        batch, _ = buffer.sample(global_steps=5, partition_id="train", batch_size=2)
        tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=_old_log_probs(tq, batch))
        batch = trainer._compute_advantage(batch, metrics={})
        trainer._update_actor(batch, metrics={})
    finally:
        tq.close()
    found = wait_for(driver, lambda r: all(x.fate in ("trained", "dropped") for x in r))
    for rollout in found:
        if rollout.group == "uid-2":
            assert rollout.fate == "dropped" and "filter_groups" in rollout.fate_reason
            continue
        group = [r.reward for r in found if r.group == rollout.group]
        if len(set(group)) > 1:
            assert (rollout.advantage > 0) == (rollout.reward == max(group))
        assert (rollout.fate, rollout.trained_step) == ("trained", 5)
        sampled, trained = flat(rollout, "logprob"), flat(rollout, "train_logprob")
        assert [None if p is None else p - 1 for p in sampled] == pytest.approx(trained)


def _old_log_probs(tq: Any, batch: Any) -> TensorDict:
    """What the actor would have computed: here the engine's values less one."""
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=["rollout_log_probs"]
    )
    return TensorDict({"old_log_probs": data["rollout_log_probs"] - 1}, batch_size=len(batch.keys))


def test_steps_metrics_go_into_the_run(own_store: Path, model: Path) -> None:
    from verl.utils.tracking import Tracking
    from world import lines

    import rollscope
    from rollscope.adapters.verl import attach

    with rollscope.init(project="p", run="r"):
        attach(make_config(model))
        tracking = Tracking("p", "e", default_backend="console")
        values = {"critic/score/mean": 0.5, "actor/lr": torch.tensor(0.25), "note": "text"}
        tracking.log(data=values, step=7)
    (metrics,) = [line["metrics"] for _, line in lines(own_store) if "metrics" in line]
    assert metrics["step"] == 7
    assert metrics["values"] == {"critic/score/mean": 0.5, "actor/lr": 0.25}


@ray.remote
class Holder:
    """Stands where a worker does; `hold` keeps it busy."""

    def hold(self) -> None:
        time.sleep(60)


@pytest.mark.parametrize("what", ["busy", "dead"])
def test_workers_that_do_not_say_that_they_have_written_are_told(
    what: str, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "CLOSE_WAIT", 10)
    workers = [Holder.remote() for _ in range(2)]
    ray.get([worker.__ray_call__.remote(ending.write) for worker in workers])
    if what == "busy":
        workers[0].hold.remote()
    else:
        ray.kill(workers[0])
    trainer = SimpleNamespace(agent_loop_manager=SimpleNamespace(agent_loop_workers=workers))
    with rollscope.init(project="p", run="r") as run:
        ending._write_all(trainer)
        assert run.flush()
    (info,) = [writers.read_info(path) for path in driver.rglob("writers/*.json")]
    assert any("1 of 2 workers did not say" in problem.text for problem in info.problems)
    for worker in workers:
        ray.kill(worker)
