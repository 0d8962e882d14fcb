"""verl's `fully_async_policy`: rollouts and training in processes that meet at a queue.

Real are the workers, the queue, the rollouter's handling of a prompt and the trainer's step.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from cpu import Workers
from verl.experimental.fully_async_policy.detach_utils import (
    RolloutSample,
    prepare_single_generation_data,
)
from verl.experimental.fully_async_policy.fully_async_rollouter import (
    FullyAsyncAgentLoopManager,
    FullyAsyncRollouter,
)
from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainer
from verl.experimental.fully_async_policy.message_queue import MessageQueue, MessageQueueClient
from verl.utils.dataset.rl_dataset import collate_fn
from world import Engine, Grader, dataset_rows, flat, make_config, reward_of, wait_for


@ray.remote
class Trainer(FullyAsyncTrainer.__ray_metadata__.modified_class):  # type: ignore[misc]
    """One step of the real trainer, less the GPU workers."""

    async def one_step(self, queue: Any) -> None:
        self.actor_rollout_wg = self.actor_wg = self.ref_policy_wg = Workers()
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.set_message_queue_client(queue)
        self.set_total_train_steps(4)
        self.global_steps += 1
        await self.fit_step()


def async_config(model: Path) -> Any:
    return make_config(
        model,
        "algorithm.adv_estimator=grpo",
        "algorithm.rollout_correction.bypass_mode=True",
        "actor_rollout_ref.hybrid_engine=False",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.multi_turn.enable=True",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "trainer.logger=[console]",
        "trainer.device=cpu",
        "trainer.test_freq=-1",
        "+async_training.trigger_parameter_sync_step=4",
        "+async_training.require_batches=1",
        "+async_training.use_trainer_do_validate=False",
        "+async_training.staleness_threshold=1",
        "+rollout.nnodes=1",
        "+rollout.n_gpus_per_node=1",
    )


def prompts() -> list[dict[str, Any]]:
    columns = dataset_rows(2, 1)
    del columns["uid"]
    rows = [{k: v[i] for k, v in columns.items()} for i in range(2)]
    return [collate_fn([row]) for row in rows]


async def generate(config: Any, engine: Engine, queue: Any) -> None:
    """What the rollouter does with each prompt."""
    manager = await FullyAsyncAgentLoopManager.create(config, engine, None, [Grader()])

    async def get_statistics() -> dict[str, Any]:
        return {}

    rollouter = SimpleNamespace(
        async_rollout_manager=manager,
        message_queue_client=queue,
        get_statistics=get_statistics,
        total_generated_samples=0,
        _step_generated_samples=0,
        processed_sample_count=0,
    )
    process = FullyAsyncRollouter.__ray_metadata__.modified_class._process_single_sample_streaming
    for number, prompt in enumerate(prompts(), 1):
        sample = RolloutSample(
            full_batch=prepare_single_generation_data(prompt, config),
            sample_id=f"sample_0_{number}",
            epoch=0,
            rollout_status={},
        )
        await process(rollouter, sample)


def test_advantages_and_what_was_trained_are_known_on_the_other_side_of_the_queue(
    driver: Path, model: Path, tmp_path: Path
) -> None:
    config = async_config(model)
    queue = MessageQueueClient(MessageQueue.options(num_cpus=1).remote(config, 10))
    engine = Engine(config, None)
    engine.record = tmp_path
    asyncio.run(generate(config, engine, queue))
    trainer = Trainer.remote(
        config=config,
        tokenizer=None,
        role_worker_mapping={},
        resource_pool_manager=None,
    )
    ray.get(trainer.one_step.remote(queue))
    found = wait_for(driver, lambda r: len(r) == 4 and all(x.fate == "trained" for x in r))
    told = {
        tuple(turns[-1]["prompt"] + turns[-1]["ids"]): turns for turns in engine.conversations()
    }
    assert len(told) == 4
    assert {(r.group, r.index) for r in found} == {
        (f"uid_sample_0_{i}", j) for i in (1, 2) for j in (0, 1)
    }
    for rollout in found:
        turns = told[tuple(flat(rollout))]
        assert rollout.reward == reward_of(flat(rollout)[len(turns[0]["prompt"]) :])
        group = [r.reward for r in found if r.group == rollout.group]
        assert (rollout.advantage > 0) == (rollout.reward == max(group)) or len(set(group)) == 1
        # Steps are the versions of the weights: asked for under the seventh, for the eighth.
        assert (rollout.policy_version, rollout.step, rollout.trained_step) == (7, 8, 1)
        mask = flat(rollout, "mask")
        sampled = [p for t in turns for p in t["logprobs"]]
        trained = [p for p, m in zip(flat(rollout, "train_logprob"), mask, strict=True) if m]
        assert trained == pytest.approx(sampled)  # bypass mode: the engine's own are taken
