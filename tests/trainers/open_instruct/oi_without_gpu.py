"""What open-instruct needs a GPU for: the learner and the engine, as Ray actors that keep notes."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import tinytok
from open_instruct import data_loader, data_types


class Learner:
    """Takes what was prepared, as the real one does, and learns nothing."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> tuple[dict[str, float], dict[str, Any]]:
        actor = ray.get_actor(data_loader.DATA_PREP_ACTOR_NAME)
        data = ray.get(actor.get_data.remote(rank=0, step=self.steps))
        self.steps += 1
        numbers = {k: v for k, v in data["metrics"].items() if isinstance(v, (int, float))}
        arrays = {k: v for k, v in data["metrics"].items() if k not in numbers}
        return {**numbers, "loss/total_avg": 0.5 * self.steps, "_token_count": 1.0}, arrays

    def from_pretrained(self) -> dict[str, Any]:
        return {"optimization_steps_done": 0, "checkpoint_state": None}

    def setup_model_update_group(self) -> None: ...

    def warmup_for_weight_sync(self) -> None: ...

    def broadcast_to_vllm(self) -> list[Any]:
        if not self.steps:
            time.sleep(3)  # open-instruct waits until it has seen the engines paused
        return []

    def save_model(self) -> None: ...


class Engine:
    """Answers every prompt, four times, each text once; every third group is all alike."""

    def __init__(self, prompts: Any, results: Any, evaluations: Any, notes: str) -> None:
        self.prompts, self.results, self.evaluations = prompts, results, evaluations
        self.notes = Path(notes)
        self.tokenizer = tinytok.make()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            request = self.prompts.get()
            made = self._answer(request)
            with self.notes.open("a") as file:
                note = {
                    "prompt_id": made.prompt_id,
                    "is_eval": request.is_eval,
                    "prompt": list(request.prompt),
                    "responses": made.responses,
                    "scores": made.reward_scores,
                }
                file.write(json.dumps(note) + "\n")
            (self.evaluations if request.is_eval else self.results).put(made)

    def _answer(self, request: Any) -> Any:
        n = request.generation_config.n
        name = f"{'eval' if request.is_eval else 'train'} {request.prompt_id}"
        texts = [f"{name}/{j} é漢🙂" for j in range(n)]
        responses = [[*self.tokenizer.encode(t), self.tokenizer.eos_token_id] for t in texts]
        is_alike = request.index % 3 == 2
        return data_types.GenerationResult(
            responses=responses,
            finish_reasons=["stop"] * n,
            masks=[[1] * len(r) for r in responses],
            request_info=data_types.RequestInfo(
                num_calls=[0] * n,
                timeouts=[0] * n,
                tool_errors=[""] * n,
                tool_outputs=[""] * n,
                tool_runtimes=[0.0] * n,
                tool_calleds=[False] * n,
                tool_call_stats=[[] for _ in range(n)],
                rollout_states=[{} for _ in range(n)],
            ),
            index=request.index,
            prompt_id=request.prompt_id,
            token_statistics=data_types.TokenStatistics(10, 100, 1.5),
            start_time=0.0,
            logprobs=[[-0.25] * len(r) for r in responses],
            reward_scores=[10.0 if is_alike or j % 2 else 0.0 for j in range(n)],
            reward_metrics={},
            model_step=0,
        )

    def ready(self) -> bool:
        return True

    def get_kv_cache_info(self) -> int:
        return 1024

    def check_background_threads(self) -> None: ...

    def wake_up(self) -> None: ...


def make_engines(*_: Any, **options: Any) -> list[Any]:
    """In the place of `vllm_utils.create_vllm_engines`."""
    queues = [options[f"{name}_queue"] for name in ("prompt", "results", "eval_results")]
    notes = os.environ["OPEN_INSTRUCT_WITHOUT_GPU"]
    return [ray.remote(Engine).options(num_cpus=0, max_concurrency=4).remote(*queues, notes)]


class Learners:
    """In the place of `ModelGroup`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.models = [_Handle(ray.remote(Learner).options(num_cpus=0).remote())]


class _Handle:
    """An actor's handle that leaves arguments out: stand-ins are in them, which do not travel."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)
        return SimpleNamespace(remote=lambda *_, **__: method.remote())
