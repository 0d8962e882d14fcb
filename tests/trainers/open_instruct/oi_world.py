"""A small world for open-instruct: the engine's queue, filled with results that we keep.

The real `DataPreparationActor` loop takes them from there.
"""

from __future__ import annotations

import queue
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import standins
import tinytok
from oi_worker import Prompts

SOURCE = Path(__file__).resolve().parents[4] / "shared" / "upstream" / "open-instruct"
if not SOURCE.is_dir():
    pytest.skip(f"open-instruct's source is not at {SOURCE}", allow_module_level=True)
sys.path.insert(0, str(SOURCE))
standins.install()

from open_instruct import data_loader, data_types, grpo_utils, model_utils, rl_utils  # noqa: E402

TOK = tinytok.make()
N = 4

DATASET = [
    {
        "input_ids_prompt": TOK.apply_chat_template(
            [{"role": "user", "content": f"sum {i} ñ"}],
            add_generation_prompt=True,
            return_dict=False,
        ),
        "ground_truth": [str(i)],
        "dataset": ["gsm8k"],
        "prompt": f"user: sum {i} ñ",
        "index": i,
        "tools": ["search"] if i % 2 else None,
    }
    for i in range(12)
]


def result(
    index: int,
    *,
    epoch: int = 0,
    model_step: int = 0,
    scores: list[float] | None = None,
    truncated: tuple[int, ...] = (),
    tools: bool = True,
    is_masked: bool = True,
    is_eval: bool = False,
) -> Any:
    """One group, as the engine sends it. Every text occurs once."""
    name = f"{'eval' if is_eval else 'train'} {epoch}/{index}"
    responses, masks = [], []
    for j in range(N):
        ask = TOK.encode(f"{name}/{j} é漢🙂 ask")
        told = TOK.encode(f"<tool>{j}</tool>") if tools else []
        say = [*TOK.encode(f"so {j}"), TOK.eos_token_id]
        responses.append(ask + told + say)
        hidden = 0 if is_masked else 1
        masks.append([1] * len(ask) + [hidden] * len(told) + [1] * len(say))
    stats = [[data_types.ToolCallStats("search", j != 1, 0.5)] if tools else [] for j in range(N)]
    return data_types.GenerationResult(
        responses=responses,
        finish_reasons=["length" if j in truncated else "stop" for j in range(N)],
        masks=masks,
        request_info=data_types.RequestInfo(
            num_calls=[1 if tools else 0] * N,
            timeouts=[0] * N,
            tool_errors=["" if j != 1 or not tools else "no such page" for j in range(N)],
            tool_outputs=[f"{name}/{j} output" if tools else "" for j in range(N)],
            tool_runtimes=[0.5 if tools else 0.0] * N,
            tool_calleds=[tools] * N,
            tool_call_stats=stats,
            rollout_states=[{"step_count": j, "done": True, "info": {}} for j in range(N)],
        ),
        index=index,
        prompt_id=f"{epoch}_{index}",
        token_statistics=data_types.TokenStatistics(10, 100, 1.5),
        start_time=0.0,
        logprobs=[[-0.25 - i / 1024 for i in range(len(r))] for r in responses],
        reward_scores=[float(10 * (j % 2)) for j in range(N)] if scores is None else scores,
        reward_metrics={},
        model_step=model_step,
    )


class Engine(queue.Queue):  # type: ignore[type-arg]
    """The queue of the inference engine."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        for item in items:
            self.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(timeout=5 if timeout is None else min(timeout, 0.05))


def make_actor(
    results: list[Any],
    *,
    traces: Path | None = None,
    mask_truncated: bool = False,
    first_step: int = 0,
    prompts: int = 2,
    world: int = 1,
    pack_length: int = 512,
) -> Any:
    """The real actor, without its constructor (which opens files), and without Ray."""
    config = data_loader.StreamingDataLoaderConfig(
        max_prompt_token_length=64,
        response_length=96,
        pack_length=pack_length,
        async_steps=2,
        num_samples_per_prompt_rollout=N,
        num_unique_prompts_rollout=prompts,
        filter_zero_std_samples=True,
        save_traces=traces is not None,
        rollouts_save_path=str(traces),
        mask_truncated_completions=mask_truncated,
    )
    kind = data_loader.DataPreparationActor.__ray_metadata__.modified_class
    actor = object.__new__(kind)
    fields = {
        "inference_results_Q": Engine([*results, data_types.ShutdownSentinel()]),
        "param_prompt_Q": types.SimpleNamespace(put=lambda prompt: None),
        "tokenizer": TOK,
        "config": config,
        "generation_config": types.SimpleNamespace(n=N),
        "num_training_steps": 50,
        "per_device_train_batch_size": 1,
        "global_batch_size": prompts,
        "dp_world_size": world,
        "actor_manager": None,
        "model_dims": None,
        "verbose": False,
        "dataset": DATASET,
        "tool_names": ["search"],
        "run_name": "grpo__1",
        "model_name": "tiny",
        "base_env_config": data_types.EnvConfig(),
        "iter_dataloader": Prompts(DATASET),
        "prepared_data": {},
        "metrics": {},
        "current_prepared_step": first_step - 1,
        "_last_consumed_step": 99,
        "lock": threading.Lock(),
        "training_step": first_step,
        "total_samples_written": 0,
        "metadata_saved": False,
        "_executor": None,
        "_prep_future": None,
        "rubric_manager": None,
        "ground_truth_overrides": {},
    }
    for name, value in fields.items():
        setattr(actor, name, value)
    return actor


def run(actor: Any) -> Any:
    np.random.seed(0)
    collate = data_loader.prepare_collated_data_for_workers
    actor._data_preparation_loop.__func__.__globals__["prepare_collated_data_for_workers"] = (
        lambda *args, **kwargs: collate(*args, **{**kwargs, "pin_memory": False})
    )
    try:
        actor._data_preparation_loop()
    finally:
        data_loader.prepare_collated_data_for_workers = collate
    return actor


def finish_writing() -> None:
    """open-instruct writes its trace files in a pool of threads that nobody waits for."""
    rl_utils._rollout_executor.shutdown(wait=True)
    rl_utils._rollout_executor = ThreadPoolExecutor(max_workers=2)


__all__ = [
    "DATASET",
    "SOURCE",
    "TOK",
    "Engine",
    "N",
    "data_loader",
    "data_types",
    "finish_writing",
    "grpo_utils",
    "make_actor",
    "model_utils",
    "result",
    "rl_utils",
    "run",
]
