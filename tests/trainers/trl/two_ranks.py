"""A training on two processes, started by torchrun; each notes what its model wrote."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from world import Rewards, trainer  # noqa: E402

from rollscope.adapters import trl as adapter  # noqa: E402


def main(tmp_path: Path) -> None:
    made = trainer(
        tmp_path, Rewards(), per_device_train_batch_size=2, max_steps=2, ddp_backend="gloo"
    )
    adapter.attach(made)
    made.train()
    rank = os.environ["RANK"]
    notes = made.accelerator.unwrap_model(made.model).notes
    (tmp_path / f"notes-{rank}.json").write_text(json.dumps(notes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
