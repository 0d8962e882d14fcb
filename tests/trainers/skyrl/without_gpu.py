"""What SkyRL's own experiment needs a GPU for, replaced by the small world's; see `entry`."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import world
from skyrl.train.trainer import RayPPOTrainer


def replace(main_base: Any) -> None:
    """In the process that trains: engine, models and optimiser. The rest is SkyRL's own."""
    experiment = main_base.BasePPOExp
    experiment.get_inference_client = lambda self: world.Engine()
    # Eight processes to look at four prompts would be most of this test's time.
    main_base.PromptDataset = _with_one_process(main_base.PromptDataset)
    workers = SimpleNamespace(PolicyWorker=None, CriticWorker=None, RefWorker=None)
    sys.modules["skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker"] = workers  # type: ignore[assignment]
    RayPPOTrainer.build_models = lambda self, *_: world.without_workers(self)
    RayPPOTrainer.fwd_logprobs_values_reward = world.forward
    RayPPOTrainer.train_critic_and_policy = world.optimise
    run = experiment.run

    @functools.wraps(run)
    def noted(self: Any) -> None:
        run(self)
        notes = {
            "answers": world.WORLD.answers,
            "episodes": [e.actions for e in world.WORLD.episodes],
            "rewards": [e.rewards for e in world.WORLD.episodes],
            "trained": world.WORLD.trained,
            "trainer": type(self.trainer).__name__,
        }
        Path(os.environ["SKYRL_WITHOUT_GPU"]).write_text(json.dumps(notes))

    experiment.run = noted


def _with_one_process(dataset: Any) -> Any:
    def make(**options: Any) -> Any:
        return dataset(**{**options, "num_workers": 1})

    return make
