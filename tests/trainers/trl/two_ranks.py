"""Trainings on two processes, started by torchrun; each process notes what its model wrote."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from trl import GRPOTrainer, RLOOTrainer  # noqa: E402
from world import Rewards, rows, trainer  # noqa: E402

from rollscope import capture  # noqa: E402
from rollscope.adapters import trl as adapter  # noqa: E402


def train(directory: Path, kind: type, cap: str | None = None, **changes: Any) -> None:
    """One training with a store of its own."""
    directory.mkdir(exist_ok=True)
    os.environ["ROLLSCOPE_DIR"] = str(directory / "store")
    if cap is not None:
        os.environ["ROLLSCOPE_SAMPLE"] = cap
    made = trainer(directory, Rewards(), kind, ddp_backend="gloo", max_steps=2, **changes)
    adapter.attach(made)
    made.train()
    run = capture.active()
    assert run is not None
    run.finish()
    notes = made.accelerator.unwrap_model(made.model).notes
    (directory / f"notes-{os.environ['RANK']}.json").write_text(json.dumps(notes))


def main(directory: Path) -> None:
    train(directory / "all", GRPOTrainer, per_device_train_batch_size=2)
    # Three groups of four on two ranks of six rows: the second one lies on both. A step takes
    # two generations, and an evaluation two batches.
    shape: dict[str, Any] = {
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 1,
        "eval_dataset": rows(6),
        "eval_strategy": "steps",
        "eval_steps": 1,
        "per_device_eval_batch_size": 6,
        "num_generations_eval": 4,
    }
    train(directory / "grpo", GRPOTrainer, "groups_per_step=1", **shape)
    train(directory / "rloo", RLOOTrainer, "rollouts_per_step=5", **shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
