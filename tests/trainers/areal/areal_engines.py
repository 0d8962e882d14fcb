"""What AReaL's trainer needs GPUs for: the inference server and the model. Both keep notes.

In single-controller mode AReaL's worker processes import this module by its name.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any

import tinytok
import torch.distributed as dist
from areal.api import ModelResponse, TrainEngine
from areal.api.io_struct import DeviceRuntimeInfo, LocalInfServerInfo
from areal.engine.sglang_remote import RemoteSGLangEngine
from areal.trainer.ppo.actor import PPOActor, PPOActorController
from areal.utils import stats_tracker

TOK = tinytok.make()
_numbers = itertools.count()


def note(kind: str, record: dict[str, Any]) -> None:
    """One line in a file of this process."""
    path = Path(os.environ["AREAL_NOTES"]) / f"{kind}-{os.getpid()}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


class Inference(RemoteSGLangEngine):
    """AReaL's own remote engine, without a server at the other end."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._engine.agenerate = self._answer
        self._engine._wait_for_server = lambda _: None

    async def _answer(self, req: Any) -> ModelResponse:
        await asyncio.sleep(0.001)
        n = next(_numbers)
        text = f"answer {os.getpid()}.{n} é漢🙂"
        ids = [*TOK.encode(text, add_special_tokens=False), TOK.eos_token_id]
        version = self._engine.get_version()
        record = {"text": text, "prompt": list(req.input_ids), "ids": ids, "version": version}
        note("answers", record)
        return ModelResponse(
            input_tokens=list(req.input_ids),
            output_tokens=list(ids),
            output_logprobs=[-n / 64 - i / 1024 for i in range(len(ids))],
            output_versions=[version] * len(ids),
            stop_reason="stop",
            tokenizer=TOK,
        )

    def launch_server(self, server_args: Any) -> LocalInfServerInfo:
        return LocalInfServerInfo(host="127.0.0.1", port=1, process=None)

    def initialize(self, engine_id: Any = None, addr: Any = None, **options: Any) -> None:
        super().initialize(engine_id, addr or ["127.0.0.1:1"], **options)


class Actor(TrainEngine):
    """AReaL's own PPO actor on no model at all: advantages are real, an update is a note."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.actor = PPOActor(config, self)
        self.rollout: Any = None
        self.version = 0

    @classmethod
    def as_controller(cls, config: Any, scheduler: Any) -> PPOActorController:
        return PPOActorController(train_engine=cls, config=config, scheduler=scheduler)

    def create_process_group(self, parallel_strategy: Any = None) -> None:
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    data_parallel_rank = 0
    data_parallel_world_size = 1
    cpu_group = None
    initialized = False  # AReaL would send arguments from rank to rank; there is one
    context_and_model_parallel_group = None

    def current_data_parallel_head(self) -> int:
        return 0

    def is_data_parallel_head(self) -> bool:
        return True

    def connect_engine(self, engine: Any, meta: Any) -> None:
        self.rollout = engine

    def prepare_batch(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rollout.prepare_batch(*args, **kwargs)
        return found

    def compute_advantages(self, data: Any) -> Any:
        return self.actor.compute_advantages(data)

    def ppo_update(self, data: Any) -> None:
        for group in data:
            for i in range(len(group["input_ids"])):
                length = int(group["attention_mask"][i].sum())
                ids, advantages = group["input_ids"][i, :length], group["advantages"][i, :length]
                row = {"ids": ids.tolist(), "advantages": advantages.tolist()}
                note("trained", {"version": self.version, **row})
        stats_tracker.scalar(loss=0.5 + self.version)

    def set_version(self, version: int) -> None:
        self.version = version

    def get_version(self) -> int:
        return self.version

    def export_stats(self) -> dict[str, float]:
        found: dict[str, float] = stats_tracker.export_all(reduce_group=None)
        return found

    def get_device_stats(self) -> DeviceRuntimeInfo:
        return DeviceRuntimeInfo(0.0, 0.0, 0.0, 0.0, "GB")

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    initialize = destroy = update_weights = save = load = step_lr_scheduler = _nothing
    save_perf_tracer = config_perf_tracer = clear_batches = _nothing


Actor.__abstractmethods__ = frozenset()  # what needs a model


def accept(group: dict[str, Any]) -> bool:
    """A dynamic filter: the third puzzle is refused."""
    return "puzzle 2" not in TOK.decode(group["input_ids"][0])


def reward_fn(
    prompt: str, completions: str, prompt_ids: Any, completion_ids: Any, **_: Any
) -> float:
    return float(sum(completion_ids) % 3)
