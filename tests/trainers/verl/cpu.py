"""verl's trainers whole on a machine without GPUs: `run_ppo`, its task runners, `fit()`.

Everything is verl's own (datasets, loaders, agent loops in Ray actors, reward workers, the
TransferQueue, balancing, filters, advantages, validation, metrics), apart from three edges:
the inference engine (`world.Engine`), the GPU workers (`Workers`, whose log probabilities are
known functions of the tokens) and the carrying of weights between the two (`Weights`).
"""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import torch
from tensordict import TensorDict
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from world import Engine, make_config

GRADER = """
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    score = sum(solution_str.encode()) % 97 / 96
    return {"score": score, "acc": float(score > 0.5), "pred": solution_str[-3:]}
"""
TRAINED, REFERENCE = -0.5, -2.0
"""What the actor's and the reference's log probability of token 0 is here; see `logprob`."""


def logprob(base: float, token: int) -> float:
    return base - token / 1024


def make_data(folder: Path, prompts: int = 8) -> list[str]:
    """Datasets on disk and a reward function, and the overrides that name them."""
    for name, first, count in (("train", 0, prompts), ("val", 900, 3)):
        rows = [
            {
                "data_source": "sums",
                "prompt": [{"role": "user", "content": f"What is 2+3? ({i}) 你好"}],
                "reward_model": {"style": "rule", "ground_truth": "5"},
                "extra_info": {"index": i, "level": "easy"},
            }
            for i in range(first, first + count)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    (folder / "grader.py").write_text(GRADER)
    return [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"reward.custom_reward_function.path={folder}/grader.py",
    ]


def training_config(model: Path, folder: Path, *overrides: str, prompts: int = 8) -> Any:
    """Two steps of two prompts with two rollouts each; validation before and after."""
    return make_config(
        model,
        *make_data(folder, prompts),
        "data.train_batch_size=2",
        "data.dataloader_num_workers=0",
        "data.shuffle=False",
        "data.validation_shuffle=False",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=True",  # asks for a reference policy
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.val_kwargs.n=1",
        "reward.num_workers=1",
        "trainer.total_training_steps=2",
        "trainer.test_freq=2",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "trainer.logger=[console]",
        "trainer.device=cpu",
        f"trainer.default_local_dir={folder}/checkpoints",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"+record={folder}/turns",
        *overrides,
    )


def make_engine(config: Any) -> Engine:
    engine = KINDS[config.get("speaks", "plain")](config, None)
    engine.record = Path(config.record)
    engine.record.mkdir(parents=True, exist_ok=True)
    return engine


class Dull(Engine):
    """Says the same every time to prompt 1: its group has no signal."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> Any:
        self.is_numbered = "(1)" not in self.read(prompt_ids)
        return await super().generate(request_id, prompt_ids=prompt_ids, **kwargs)


class Failing(Engine):
    """One of two rollouts of prompt 1 finds the engine gone, after it has called its tool."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> Any:
        text = self.read(prompt_ids)
        if "(1)" in text and "<|im_start|>tool" in text:
            gone = self.record / "gone"
            if not gone.exists():
                gone.touch()
                raise ConnectionError("engine is gone")
        return await super().generate(request_id, prompt_ids=prompt_ids, **kwargs)


class Drifting(Engine):
    """Its log probabilities are the actor's, except for prompt 1, where they are far off."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> Any:
        output = await super().generate(request_id, prompt_ids=prompt_ids, **kwargs)
        off = 50.0 if "(1)" in self.read(prompt_ids) else 0.0
        output.log_probs = [logprob(TRAINED, i) - off for i in output.token_ids]
        return output


class Agreeing(Engine):
    """Its weights are nearly the actor's, as they were before the first step."""

    version = 0

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        output = await super().generate(*args, **kwargs)
        output.log_probs = [logprob(TRAINED, i) - 1 / 128 for i in output.token_ids]
        return output


class Slow(Engine):
    """In the process where it speaks, Rollscope takes a second to decode a rollout."""

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        from rollscope.adapters.verl import worker

        if not hasattr(worker, "fast"):
            worker.fast = worker.convert
            worker.convert = lambda *a, **k: (time.sleep(1), worker.fast(*a, **k))[1]
        return await super().generate(*args, **kwargs)


KINDS = {
    "plain": Engine,
    "dull": Dull,
    "failing": Failing,
    "drifting": Drifting,
    "agreeing": Agreeing,
    "slow": Slow,
}


class Workers:
    """The edge to the GPU workers of both trainers: numbers that a test can know."""

    def __init__(self) -> None:
        self._dispatch_info = {"actor": [0, 1]}

    def compute_log_prob(self, batch: Any) -> Any:
        return self._answer(batch, TRAINED)

    def compute_ref_log_prob(self, batch: Any) -> Any:
        return self._answer(batch, REFERENCE)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...
    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...

    def update_actor(self, batch: Any) -> TensorDict:
        from verl.utils import tensordict_utils as tu

        output = TensorDict({}, batch_size=[])
        tu.assign_non_tensor(output, metrics={"mfu": 0.1, "loss": [0.5]})
        return output

    def _answer(self, batch: Any, base: float) -> Any:
        if isinstance(batch, TensorDict):
            return self._numbers(batch["input_ids"], base)
        import transfer_queue as tq

        place = {"keys": batch.keys, "partition_id": batch.partition_id}
        ids = tq.kv_batch_get(**place, select_fields=["input_ids"])["input_ids"]
        numbers = self._numbers(ids, base).select("log_probs", "entropy")
        return tq.kv_batch_put(**place, fields=numbers)

    def _numbers(self, ids: torch.Tensor, base: float) -> TensorDict:
        """A model's output at a place is about the token after it."""
        from verl.utils import tensordict_utils as tu

        rows = [base - row.roll(-1) / 1024 for row in ids.unbind()]
        nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        numbers = {"log_probs": nested, "entropy": nested * 0 + 1}
        output = TensorDict(numbers, batch_size=[len(rows)])
        tu.assign_non_tensor(output, metrics={"mfu": 0.1})
        return output


class Weights:
    """The edge to the checkpoint engine: weights arrive nowhere."""

    def update_weights(self, *args: Any) -> None: ...
    def sleep_replicas(self) -> None: ...
    def abort_replicas(self) -> None: ...
    def resume_generation_replicas(self) -> None: ...


class WithoutGpus(PPOTrainer):
    """`_setup` less what needs a GPU."""

    def _setup(self) -> None:
        from verl.experimental.reward_loop import RewardLoopManager

        self._init_tokenizer()
        self._init_dataloader()
        self._init_dump_executor()
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.actor_rollout_wg = self.ref_policy_wg = Workers()
        self.ref_in_actor = False
        self.distillation_config = None
        self.reward_loop_manager = RewardLoopManager(self.config)
        self.checkpoint_manager = Weights()
        self.replay_buffer.poll_interval = 0.2
        self._load_checkpoint()

    def get_llm_client(self) -> Engine:
        return make_engine(self.config)


class Sync(WithoutGpus, PPOTrainerSync): ...


class ColocateAsync(WithoutGpus, PPOTrainerColocateAsync):
    def on_step_begin(self) -> None:
        self._settle()

    def on_step_end(self) -> None:
        super().on_step_end()
        self._settle()

    def _settle(self) -> None:
        """Wait until nothing is being generated, so that what is left over is left over, and
        nothing is on its way when the training ends."""
        import transfer_queue as tq

        def is_open(tag: dict[str, Any]) -> bool:
            return tag.get("is_prompt", False) and tag["status"] in ("pending", "running")

        while any(is_open(tag) for tag in (tq.kv_list("train") or {}).get("train", {}).values()):
            time.sleep(0.1)


def break_adapter() -> None:
    """In this process every function of the trainer's side of the adapter raises, apart from
    those that put the wrappers around verl's own."""
    from rollscope.adapters.verl import ending, trainer, trainer_legacy, trainer_v1

    wraps = {"_update_actor", "_compute_reward_colocate", "_fit"}
    keep = {"replace", "original", "wrap_class", *wraps}

    def raises(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("sabotage")

    for module in (ending, trainer, trainer_legacy, trainer_v1):
        for name, found in inspect.getmembers(module, inspect.isfunction):
            ours = found.__module__.startswith("rollscope.adapters")
            if ours and not name.startswith("patch") and name not in keep:
                setattr(module, name, raises)


@ray.remote
class RunnerV1(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc]
    def run(self, config: Any) -> None:
        from cpu import (
            ColocateAsync,
            Sync,
            break_adapter,
        )  # this class is sent by value, with its own globals
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

        if config.get("is_broken"):
            break_adapter()
        TRAINER_REGISTRY.update(sync=Sync, colocate_async=ColocateAsync)
        super().run(config)


@ray.remote
class RunnerLegacy:
    """What `main_ppo_v0.TaskRunner.run` does, less what needs a GPU."""

    def run(self, config: Any) -> None:
        from omegaconf import OmegaConf
        from verl.experimental.agent_loop.agent_loop import AgentLoopManager
        from verl.experimental.reward_loop import RewardLoopManager
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer
        from verl.trainer.ppo.utils import Role
        from verl.utils import hf_tokenizer

        if config.get("is_broken"):
            break_adapter()
        OmegaConf.resolve(config)
        trainer = RayPPOTrainer(
            config=config,
            tokenizer=hf_tokenizer(config.actor_rollout_ref.model.path),
            role_worker_mapping={Role.ActorRolloutRef: Workers},
            resource_pool_manager=SimpleNamespace(get_n_gpus=lambda: 1),
        )
        trainer.actor_rollout_wg = trainer.ref_policy_wg = Workers()
        trainer.checkpoint_manager = Weights()
        trainer.reward_loop_manager = RewardLoopManager(config)
        handles = trainer.reward_loop_manager.reward_loop_worker_handles
        trainer.async_rollout_manager = AgentLoopManager.create(
            config, make_engine(config), None, handles
        )
        trainer.fit()
