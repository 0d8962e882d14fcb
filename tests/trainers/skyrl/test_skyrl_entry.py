"""SkyRL's own command, handed over to ours: parsed, validated, trained in a Ray task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import world  # before SkyRL: it makes its types importable
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from stored import Stored, flat, written

from rollscope.adapters import skyrl

HERE = Path(__file__).resolve().parent


def options(tmp_path: Path) -> dict[str, Any]:
    """What a user types, for a model and data on this disk."""
    world.TOK.save_pretrained(tmp_path / "model")
    rows = world.Tasks(4).collate_fn(list(range(4)))
    lines = [
        json.dumps({"prompt": r["prompt"], "env_class": "guess", **r["env_extras"]}) for r in rows
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    return {
        "data.train_data": f"[{tmp_path / 'tasks.jsonl'}]",
        "data.dataloader.num_workers": 0,
        "data.dataloader.persistent_workers": "false",
        "environment.env_class": "guess",
        "generator.inference_engine.enable_ray_prometheus_stats": "false",
        "generator.max_turns": 3,
        "generator.max_input_length": 4000,
        "generator.n_samples_per_prompt": 3,
        "generator.sampling_params.logprobs": 1,
        "generator.sampling_params.max_generate_length": 60,
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.use_kl_loss": "false",
        "trainer.ckpt_interval": -1,
        "trainer.ckpt_path": tmp_path / "checkpoints",
        "trainer.enable_ray_gpu_monitor": "false",
        "trainer.epochs": 1,
        "trainer.eval_before_train": "false",
        "trainer.eval_interval": -1,
        "trainer.export_path": tmp_path / "exports",
        "trainer.hf_save_interval": -1,
        "trainer.log_path": tmp_path / "logs",
        "trainer.logger": "console",
        "trainer.max_prompt_length": 200,
        "trainer.micro_forward_batch_size_per_gpu": 1,
        "trainer.micro_train_batch_size_per_gpu": 1,
        "trainer.placement.colocate_all": "false",
        "trainer.policy.model.path": tmp_path / "model",
        "trainer.policy_mini_batch_size": 2,
        "trainer.project_name": "numbers",
        "trainer.resume_mode": "none",
        "trainer.run_name": "typed",
        "trainer.train_batch_size": 2,
    }


SCRIPT = """
import sys

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray


class Exp(BasePPOExp):
    pass


@ray.remote(num_cpus=1)
def skyrl_entrypoint(cfg):
    Exp(cfg).run()


if __name__ == "__main__":
    cfg = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(skyrl_entrypoint.remote(cfg))
"""
"""As the entry points of SkyRL's examples are written."""


@pytest.mark.parametrize("way", ["option", "launcher"])
def test_what_a_user_types_records_the_training(own_store: Path, tmp_path: Path, way: str) -> None:
    notes = tmp_path / "notes.json"
    typed = options(tmp_path)
    if way == "option":
        typed["trainer.override_entrypoint"] = "rollscope.adapters.skyrl"
        command = [sys.executable, "-m", "skyrl.train.entrypoints.main_base"]
    else:
        (tmp_path / "main_own.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "rollscope.adapters.skyrl", "main_own.py"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE / "entry"),
        "SKYRL_WITHOUT_GPU": str(notes),
        "RAY_ADDRESS": "local",  # not a cluster of somebody else on this machine
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    done = subprocess.run(
        [*command, *(f"{name}={value}" for name, value in typed.items())],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    noted = json.loads(notes.read_text())
    assert noted["trainer"] == "RayPPOTrainer"
    found = Stored(own_store)
    assert found.projects == {("numbers", "typed")}
    assert found.orphans == []
    assert sorted(written(r) for r in found) == sorted(noted["episodes"])
    rewards = dict(zip(map(str, noted["episodes"]), noted["rewards"], strict=True))
    for rollout in found:
        last = noted["answers"][written(rollout)[-1]]
        assert flat(rollout) == last["prompt"] + last["ids"]
        assert rollout.reward == sum(rewards[str(written(rollout))])
        assert rollout.fate == "trained"
    assert sorted(map(str, (flat(r) for r in found))) == sorted(
        str(row["ids"]) for row in noted["trained"]
    )
    assert set(found.metrics) == {1, 2}


def test_the_same_command_makes_the_fully_asynchronous_trainer_when_its_option_says_so() -> None:
    assert skyrl._experiment(world.config()) is BasePPOExp
    config = world.config(is_async=True)
    kind = skyrl._experiment(config)
    assert issubclass(kind, BasePPOExp)
    made = kind.get_trainer(
        object(),
        cfg=config,
        tracker=world.tracker(config),
        tokenizer=world.TOK,
        train_dataset=world.Tasks(4),
        eval_dataset=None,
        inference_engine_client=world.Engine(),
        generator=None,
        colocate_pg=None,
    )
    assert isinstance(made, FullyAsyncRayPPOTrainer)
