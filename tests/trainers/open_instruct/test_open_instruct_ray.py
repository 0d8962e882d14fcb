"""The real actor in a real Ray worker, on a cluster that was started without our settings."""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import oi_world as world
import pytest
import ray
from oi_worker import Prompts
from oi_world import DATASET, TOK, N, data_loader, data_types, result
from ray.util import queue as ray_queue
from stored import Stored, flat

from rollscope import capture
from rollscope.adapters import open_instruct
from rollscope.adapters.open_instruct import hook

HERE = Path(__file__).resolve().parent


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [n for n in os.environ if n.startswith("ROLLSCOPE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    paths = [str(HERE.parent), str(HERE), str(world.SOURCE)]
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={
            "env_vars": {"PYTHONPATH": os.pathsep.join(paths)},
            "worker_process_setup_hook": "oi_worker.prepare",
        },
    )
    yield
    ray.shutdown()


def test_the_actor_records_what_it_prepares(
    cluster: None, own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DIR", str(own_store)), ("SEAL", "off"), ("MIN_FREE", "0")):
        monkeypatch.setenv(f"ROLLSCOPE_{name}", value)
    kept = {n: getattr(data_loader, n) for n in (*hook.SEAMS, "DataPreparationActor")}
    hook.recorder.__init__()  # type: ignore[misc]
    hook.recorder.project = "sums"
    open_instruct.install()
    monkeypatch.setattr(data_loader, "HFDataLoader", Prompts)
    results = ray_queue.Queue()
    sent = [result(0), result(5, scores=[10.0] * N), result(1)]
    for group in sent:
        results.put(group)
    actor: Any = data_loader.DataPreparationActor.options(name="data-prep", num_cpus=1).remote(
        dataset=datasets.Dataset.from_list(DATASET),
        inference_results_Q=results,
        param_prompt_Q=ray_queue.Queue(),
        tokenizer=TOK,
        config=data_loader.StreamingDataLoaderConfig(
            max_prompt_token_length=64,
            response_length=96,
            pack_length=512,
            async_steps=2,
            num_samples_per_prompt_rollout=N,
            num_unique_prompts_rollout=3,
            filter_zero_std_samples=True,
        ),
        generation_config=types.SimpleNamespace(n=N),
        num_training_steps=1,
        seed=1,
        per_device_train_batch_size=1,
        global_batch_size=3,
        dp_world_size=1,
        max_possible_score=10.0,
        actor_manager=None,
        model_dims=None,
        verbose=False,
        work_dir=str(tmp_path),
        tool_names=["search"],
        run_name="grpo__7",
        model_name="tiny",
        base_env_config=data_types.EnvConfig(),
    )
    try:
        batch = ray.get(actor.get_data.remote(rank=0, step=0), timeout=300)
        assert batch["metrics"]["scores"] == 5.0
        assert capture.active() is not None  # the driver has begun the run for its actors
        wait_for_rollouts(own_store, 12)
        found = Stored(own_store)
    finally:
        for name, value in kept.items():
            setattr(data_loader, name, value)
    assert found.projects == {("sums", "grpo__7")}
    assert found.orphans == []
    assert Counter((r.task, r.fate) for r in found) == {
        ("0", "trained"): N,
        ("1", "trained"): N,
        ("5", "dropped"): N,
    }
    by_name = {
        f"open-instruct/train/{g.prompt_id}/{j}": g.responses[j] for g in sent for j in range(N)
    }
    for rollout in found:
        prompt = DATASET[int(str(rollout.task))]["input_ids_prompt"]
        assert flat(rollout) == prompt + by_name[str(rollout.key)]


def wait_for_rollouts(store: Path, n: int) -> None:
    """The actor writes from a thread of its own, a moment after it answered."""
    import time

    from rollscope.store.read.reader import Reader

    for _ in range(3000):
        with Reader(store) as reader:
            (count,) = (
                reader.cursor()
                .execute("SELECT count(*) FROM rollouts WHERE fate IN ('trained', 'dropped')")
                .fetchone()
            )
        if count == n:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{count} of {n} rollouts after five minutes; {sys.version}")
