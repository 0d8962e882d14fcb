"""AReaL's real `PPOTrainer.train()`: `python areal_train.py spmd|controller DIRECTORY [alone]`.

`alone`: without our line, as a program that the user does not own.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ["AREAL_SPMD_MODE"] = "1" if sys.argv[1] == "spmd" else "0"

import areal.engine as areal_engine
import areal_engines
from areal.api.cli_args import (
    ClusterSpecConfig,
    EvaluatorConfig,
    GenerationHyperparameters,
    InferenceEngineConfig,
    NameResolveConfig,
    PPOActorConfig,
    PPOConfig,
    RecoverConfig,
    SaverConfig,
    SchedulerConfig,
    SchedulingSpec,
    StatsLoggerConfig,
    TrainDatasetConfig,
    ValidDatasetConfig,
)
from areal.trainer import rl_trainer
from datasets import Dataset

from rollscope import capture

PAGE = Path(__file__).parents[3] / "docs" / "trainers" / "areal.md"
"""Its first lines are what a user types."""

ATTACH = "    rollscope.adapters.areal.attach(trainer)\n"


def config(root: Path) -> PPOConfig:
    names = {"experiment_name": "puzzles", "trial_name": "trial-1", "fileroot": str(root)}
    areal_engines.TOK.save_pretrained(root / "tok")
    (root / "names").mkdir()
    spec = (
        SchedulingSpec(
            cpu=1, gpu=0, mem=1, port_count=2, cmd="python -m areal.infra.rpc.rpc_server"
        ),
    )
    actor = PPOActorConfig(
        experiment_name="puzzles",
        trial_name="trial-1",
        backend="fsdp:d1",
        path=str(root / "tok"),
        kl_ctl=0.0,
        weight_update_mode="disk",
        scheduling_spec=spec,
    )
    actor.use_decoupled_loss = False
    actor.recompute_logprob = False
    return PPOConfig(
        experiment_name="puzzles",
        trial_name="trial-1",
        cluster=ClusterSpecConfig(
            fileroot=str(root), name_resolve=NameResolveConfig(nfs_record_root=str(root / "names"))
        ),
        total_train_epochs=1,
        tokenizer_path=str(root / "tok"),
        train_dataset=TrainDatasetConfig(
            path="x", type="rl", batch_size=2, shuffle=False, num_workers=0
        ),
        valid_dataset=ValidDatasetConfig(path="x", type="rl", batch_size=2, num_workers=0),
        gconfig=GenerationHyperparameters(n_samples=3, max_new_tokens=48),
        eval_gconfig=GenerationHyperparameters(n_samples=1, max_new_tokens=48),
        rollout=InferenceEngineConfig(
            **names,
            backend="sglang:d1",
            tokenizer_path=str(root / "tok"),
            consumer_batch_size=2,
            max_concurrent_rollouts=4,
            max_head_offpolicyness=2,
            check_trajectory_format=False,
            scheduling_spec=spec,
        ),
        actor=actor,
        saver=SaverConfig(**names),
        evaluator=EvaluatorConfig(**names, freq_steps=1),
        recover=RecoverConfig(**names),
        stats_logger=StatsLoggerConfig(**names),
        scheduler=SchedulerConfig(type="local"),
    )


def rows(n: int, kind: str) -> Dataset:
    return Dataset.from_list(
        [
            {
                "messages": [{"role": "user", "content": f"puzzle {i} ñ"}],
                "answer": str(i),
                "query_id": f"{kind}-{i}",
            }
            for i in range(n)
        ]
    )


def main(root: Path) -> None:
    areal_engine.FSDPPPOActor = areal_engines.Actor
    rl_trainer.RemoteSGLangEngine = areal_engines.Inference
    # The server's command line, which asks for the version of its package.
    rl_trainer.SGLangConfig.build_args = staticmethod(lambda **_: {})
    settings = config(root)
    given = {
        "reward_fn": "areal_engines.reward_fn",
        "gconfig": settings.gconfig,
        "tokenizer": str(root / "tok"),
    }
    typed = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert "eval_workflow" in typed and ATTACH in typed
    if sys.argv[3:] == ["alone"]:
        typed = typed.replace(ATTACH, "")
    names = {
        "PPOTrainer": Filtering,
        "config": settings,
        "train_dataset": rows(6, "puzzle"),
        "valid_dataset": rows(2, "check"),
        "workflow_kwargs": given,
        "eval_workflow_kwargs": dict(given),
    }
    exec(typed, names)
    if (run := capture.active()) is not None:
        run.finish()


class Filtering(rl_trainer.PPOTrainer):
    """AReaL's trainer with a dynamic filter, which the page's lines do not have."""

    def train(self, **given: Any) -> None:
        super().train(**given, dynamic_filter_fn="areal_engines.accept")


if __name__ == "__main__":
    main(Path(sys.argv[2]))
