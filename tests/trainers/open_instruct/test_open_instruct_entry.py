"""Our launcher around open-instruct's real `main`, on a Ray cluster that knows nothing of us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oi_world as world
import pytest
import ray
from oi_world import TOK, N
from stored import Stored, flat
from transformers import Qwen2Config

HERE = Path(__file__).resolve().parent


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its GPU is a number: nothing here uses one."""
    for name in [n for n in os.environ if n.startswith("ROLLSCOPE")]:
        monkeypatch.delenv(name)
    paths = [HERE / "entry", HERE, HERE.parent, world.SOURCE]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setenv("OPEN_INSTRUCT_WITHOUT_GPU", str(tmp_path / "engine.jsonl"))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ray.init(address="local", num_cpus=6, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def options(tmp_path: Path) -> dict[str, Any]:
    TOK.save_pretrained(tmp_path / "model")
    Qwen2Config(num_hidden_layers=1, hidden_size=32).save_pretrained(tmp_path / "model")
    rows = [
        {
            "messages": [{"role": "user", "content": f"sum {i} ñ"}],
            "ground_truth": str(i),
            "dataset": "gsm8k",
        }
        for i in range(9)
    ]
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {
        "dataset_mixer_list": [tmp_path / "sums", "1.0"],
        "dataset_mixer_eval_list": [tmp_path / "sums", "2"],
        "dataset_mixer_eval_list_splits": ["train"],
        "dataset_local_cache_dir": [tmp_path / "cache"],
        "model_name_or_path": [tmp_path / "model"],
        "output_dir": [tmp_path / "output"],
        "wandb_project": ["sums"],
        "push_to_hub": [False],
        "single_gpu_mode": [True],
        "enable_queue_dashboard": [False],
        "load_ref_policy": [False],
        "beta": ["0.0"],
        "max_prompt_token_length": [64],
        "response_length": [64],
        "pack_length": [256],
        "async_steps": [2],
        "num_samples_per_prompt_rollout": [N],
        "num_unique_prompts_rollout": [2],
        "total_episodes": [3 * 2 * N],
        "local_eval_every": [1],
        "save_freq": [-1],
    }


def test_what_a_user_types_records_the_training(
    cluster: str, own_store: Path, tmp_path: Path
) -> None:
    typed = [str(w) for k, v in options(tmp_path).items() for w in (f"--{k}", *v)]
    script = str(HERE / "grpo_without_gpu.py")
    done = subprocess.run(
        [sys.executable, "-m", "rollscope.adapters.open_instruct", script, *typed],
        env={
            **os.environ,
            "RAY_ADDRESS": cluster,
            "ROLLSCOPE_DIR": str(own_store),
            "ROLLSCOPE_MIN_FREE": "0",
            "ROLLSCOPE_SEAL": "off",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    notes = [json.loads(line) for line in (tmp_path / "engine.jsonl").read_text().splitlines()]
    wrote = {(n["is_eval"], n["prompt_id"]): n for n in notes}
    found = Stored(own_store)
    assert found.orphans == []
    ((project, run),) = found.projects
    assert project == "sums" and run.startswith("grpo__42__")
    for rollout in found:
        split, prompt_id = str(rollout.group).split("/")
        note = wrote[split == "eval", prompt_id]
        assert flat(rollout) == note["prompt"] + note["responses"][rollout.index]
        assert rollout.reward == note["scores"][rollout.index]
        is_alike = len(set(note["scores"])) == 1
        if split == "train":
            assert rollout.fate == ("dropped" if is_alike else "trained")
    trained = [r for r in found if r.fate == "trained"]
    assert {r.trained_step for r in trained} >= {1, 2, 3}
    assert {step: values["loss/total_avg"] for step, values in found.metrics.items()} == {
        1: 0.5,
        2: 1.0,
        3: 1.5,
    }
