"""A small world for SkyRL: an engine, an environment and a dataset that keep their own records.

Every answer of the engine is a text that occurs once and depends on its prompt alone. So the
records of the engine (tokens), of the environment (actions, rewards) and of the optimiser (what
was trained on) find each other without any help of SkyRL or Rollscope.
"""

from __future__ import annotations

import asyncio
import sys
import typing
import zlib
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import typing_extensions

if sys.version_info < (3, 12):
    # SkyRL's types cannot be imported below 3.12 otherwise: pydantic refuses the stdlib's.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

import skyrl_gym
import tinytok
import torch
from skyrl.backends.skyrl_train.inference_servers.engine_utils import (
    get_sampling_params_for_backend,
)
from skyrl.train.config import (
    AlgorithmConfig,
    GeneratorConfig,
    InferenceEngineConfig,
    SamplingParams,
    SkyRLTrainConfig,
    TrainerConfig,
)
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.tracking import Tracking
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

TOK = tinytok.make()


class World:
    """The records of one training."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        """The engine's: by the answer's text, the ids it got and gave, and log probabilities."""
        self.asked: dict[int, int] = {}
        self.episodes: list[Episode] = []
        self.trained: list[dict[str, Any]] = []
        """The optimiser's: each row it was given, padding left out."""
        self.pads = 0
        self.results: list[Any] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.fail_on: str | None = None
        self.stop_reason = "stop"

    def episode(self, first_action: str) -> Episode:
        return next(e for e in self.episodes if e.actions[0] == first_action)


WORLD = World()


class Episode(BaseTextEnv):
    """Guess for a number of turns that depends on the task. Task 0 never earns anything."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.task = extras["task"]
        self.actions: list[str] = []
        self.rewards: list[float] = []
        WORLD.episodes.append(self)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        if WORLD.fail_on == f"{self.task}/{len(self.actions)}":
            raise RuntimeError("the sandbox is gone")
        self.actions.append(action)
        turns = 1 + self.task % 3
        done = len(self.actions) >= turns
        earned = float(zlib.crc32(action.encode()) % 3)
        value = 0.0 if self.task == 0 else earned if done else 0.125
        self.rewards.append(value)
        seen = [] if done else [{"role": "user", "content": f"tool says {len(self.actions)} 好"}]
        return BaseTextEnvStepOutput(observations=seen, reward=value, done=done, metadata={})

    def get_metrics(self) -> dict[str, Any]:
        return {"turns": len(self.actions)}


skyrl_gym.register("guess", entry_point=Episode)


class Engine:
    """Answers at once. What it says to the n-th request with the same prompt is always the same."""

    model_name = "tiny"
    weight_version = 1

    async def generate(self, batch: Any, model: Any = None, **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        texts, ids, logprobs = [], [], []
        for prompt in batch["prompt_token_ids"]:
            name = zlib.crc32(bytes(str(prompt), "ascii"))
            WORLD.asked[name] = n = WORLD.asked.get(name, 0) + 1
            text = f"answer {name}.{n} é漢🙂"
            out = [*TOK.encode(text, add_special_tokens=False), TOK.eos_token_id]
            lps = [-(name % 64) / 64 - n - i / 1024 for i in range(len(out))]
            WORLD.answers[text] = {"prompt": list(prompt), "ids": list(out), "logprobs": list(lps)}
            texts.append(text)
            ids.append(out)
            logprobs.append(lps)
        return {
            "responses": texts,
            "response_ids": ids,
            "stop_reasons": [WORLD.stop_reason] * len(texts),
            "response_logprobs": logprobs,
            "prompt_logprobs": None,
            "rollout_expert_indices": None,
        }

    async def finish_session(self, session: Any) -> None: ...

    async def sleep(self, *_: Any, **__: Any) -> None: ...


class Tasks:
    """`n` prompts with uids, as SkyRL's PromptDataset hands them over."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i

    def collate_fn(self, batch: list[int]) -> list[dict[str, Any]]:
        return [
            {
                "prompt": [
                    {"role": "system", "content": "guess well"},
                    {"role": "user", "content": f"question {i} ñ"},
                ],
                "env_class": None,
                "env_extras": {
                    "data_source": "numbers",
                    "task": i,
                    "reward_spec": {"method": "rule", "ground_truth": str(i)},
                },
                "uid": str(i),
            }
            for i in batch
        ]


def config(
    *,
    is_async: bool = False,
    step_wise: bool = False,
    merge: bool = False,
    sampling: str | None = None,
    batched: bool = False,
    full_batch: bool = False,
    overlong: bool = False,
    eval_interval: int = -1,
    epochs: int = 1,
) -> SkyRLTrainConfig:
    cfg = SkyRLTrainConfig(
        trainer=TrainerConfig(
            project_name="numbers",
            run_name="first try",
            logger="console",
            micro_train_batch_size_per_gpu=2,
            train_batch_size=2,
            policy_mini_batch_size=2,
            eval_batch_size=2,
            epochs=epochs,
            max_prompt_length=200,
            resume_mode="none",
            algorithm=AlgorithmConfig(advantage_estimator="grpo", use_kl_loss=False),
        ),
        generator=GeneratorConfig(
            sampling_params=SamplingParams(max_generate_length=60, logprobs=1, temperature=0.75),
            n_samples_per_prompt=3,
            batched=batched,
            max_turns=1 if batched else 3,
            inference_engine=InferenceEngineConfig(),
        ),
    )
    cfg.environment.env_class = "guess"
    cfg.data.dataloader.num_workers = 0
    cfg.data.dataloader.persistent_workers = False
    trainer, generator = cfg.trainer, cfg.generator
    trainer.eval_interval = eval_interval
    trainer.eval_before_train = eval_interval > 0
    trainer.ckpt_interval = trainer.hf_save_interval = -1
    trainer.placement.colocate_all = False
    trainer.algorithm.use_kl_in_reward = False
    trainer.update_ref_every_epoch = False
    trainer.algorithm.dynamic_sampling.type = sampling
    trainer.enable_ray_gpu_monitor = False
    trainer.print_example_interval = -1
    trainer.dump_eval_results = False
    generator.step_wise_trajectories = step_wise
    generator.merge_stepwise_output = merge
    generator.apply_overlong_filtering = overlong
    generator.inference_engine.enable_ray_prometheus_stats = False
    generator.eval_n_samples_per_prompt = 2
    generator.max_input_length = 4000
    if is_async:
        trainer.fully_async.enabled = True
        trainer.fully_async.max_staleness_steps = 2
        trainer.fully_async.num_parallel_generation_workers = 4
        trainer.fully_async.sample_full_batch = full_batch
        trainer.algorithm.zero_variance_filter = full_batch
        trainer.algorithm.policy_loss_type = "rollout_is"
    return cfg


class OneStepOff(RayPPOTrainer):
    """Trains on a batch while it generates the next one, like SkyRL's `examples/train/async`."""

    async def train(self) -> None:
        ready: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        self.init_weight_sync_state()
        self.global_step = 1
        for _ in range(self.cfg.trainer.epochs):
            ahead = asyncio.create_task(self._generate_ahead(ready))
            for _ in range(len(self.train_dataloader)):
                output, uids = await ready.get()
                batch = self.convert_to_training_input(output, uids)
                batch = await asyncio.to_thread(self.fwd_logprobs_values_reward, batch)
                batch = self.compute_advantages_and_returns(batch)
                await asyncio.to_thread(self.train_critic_and_policy, batch)
                self.tracker.log(self.all_metrics, step=self.global_step)
                self.global_step += 1
            await ahead

    async def _generate_ahead(self, ready: asyncio.Queue[Any]) -> None:
        options = self.cfg.generator
        for prompts in self.train_dataloader:
            params = get_sampling_params_for_backend("vllm", options.sampling_params)
            given, uids = prepare_generator_input(
                prompts, options.n_samples_per_prompt, params, "guess", "train", self.global_step
            )
            made = await self.generate(given)
            await ready.put(self.postprocess_generator_output(made, uids))


class NotingTracker(Tracking):
    """SkyRL's own tracker, on the console; what it is given is noted."""

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        WORLD.logged.append((step, dict(data)))
        super().log(data, step, commit)


def tracker(cfg: SkyRLTrainConfig) -> Tracking:
    trainer = cfg.trainer
    return NotingTracker(trainer.project_name, trainer.run_name, trainer.logger, cfg)


def make(cfg: SkyRLTrainConfig, *, tasks: int = 6, dp: int = 1, kind: Any = None) -> Any:
    """A trainer on real classes; the forward pass and the optimiser are the fake ones."""
    WORLD.__init__()  # type: ignore[misc]
    torch.manual_seed(0)
    is_async = cfg.trainer.fully_async.enabled
    kind = kind or (FullyAsyncRayPPOTrainer if is_async else RayPPOTrainer)
    trainer = kind(
        cfg=cfg,
        tracker=tracker(cfg),
        tokenizer=TOK,
        train_dataset=Tasks(tasks),
        eval_dataset=Tasks(3) if cfg.trainer.eval_interval > 0 else None,
        inference_engine_client=Engine(),
        generator=SkyRLGymGenerator(cfg.generator, cfg.environment.skyrl_gym, Engine(), TOK),
    )
    without_workers(trainer, dp)
    trainer.fwd_logprobs_values_reward = partial(forward, trainer)
    trainer.train_critic_and_policy = partial(optimise, trainer)
    return trainer


def without_workers(trainer: Any, dp: int = 1) -> None:
    """The workers on GPUs, which hold the models."""
    trainer.dispatch = MagicMock()
    trainer.dispatch.save_weights_for_sampler = AsyncMock()
    trainer.dispatch.get_lcm_dp_size = MagicMock(return_value=dp)
    trainer.init_weight_sync_state = lambda: None


def forward(trainer: Any, batch: Any) -> Any:
    batch["values"] = None
    batch["action_log_probs"] = batch["rollout_logprobs"] - 1 / 128  # nearly those of sampling
    batch["base_action_log_probs"] = None
    return batch


def optimise(trainer: Any, batch: Any) -> dict[str, float]:
    _note(trainer, batch)
    return {"policy_loss": 0.25}


def _note(trainer: Any, batch: Any) -> None:
    pads = batch.metadata["pad_size"]
    WORLD.pads += pads
    for i in range(len(batch["sequences"]) - pads):
        real = batch["attention_mask"][i].bool()
        response = batch["response_mask"][i].bool()
        WORLD.trained.append(
            {
                "step": trainer.global_step,
                "ids": batch["sequences"][i][real].tolist(),
                "advantages": batch["advantages"][i][response].tolist(),
                "mask": batch["loss_mask"][i][response].int().tolist(),
                "logprobs": batch["action_log_probs"][i][response].tolist(),
            }
        )
