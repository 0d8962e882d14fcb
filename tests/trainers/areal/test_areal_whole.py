"""AReaL's real `PPOTrainer.train()`, in one process and with its controllers and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from checked import named_faults, silent
from stored import Stored, flat, written

import rollscope

HERE = Path(__file__).resolve().parent
SOURCES = str(Path(rollscope.__file__).parents[1])


def train(mode: str, directory: Path, store: Path) -> None:
    (directory / "notes").mkdir()
    command = [str(HERE / "areal_train.py"), mode, str(directory)]
    if mode == "launched":
        command[1] = "controller"
        command = ["-m", "rollscope.adapters.areal", "python", *command, "alone"]
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "AREAL_NOTES": str(directory / "notes"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), SOURCES]),
            "ROLLSCOPE_DIR": str(store),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def notes(directory: Path, kind: str) -> list[dict[str, Any]]:
    """What the processes noted about this."""
    files = sorted((directory / "notes").glob(f"{kind}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


LOOKED = {
    "advantage.order",
    "fate.contradiction",
    "fate.unfinished",
    "group.size",
    "group.slot",
    "logprob.missing",
    "logprob.odd",
    "mask.empty",
    "mask.foreign",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
    "version.backwards",
    "version.future",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


@pytest.mark.parametrize("mode", ["spmd", "controller", "launched"])
def test_a_whole_training(own_store: Path, tmp_path: Path, mode: str) -> None:
    train(mode, tmp_path, own_store)
    found = Stored(own_store)
    assert found.projects == {("puzzles", "trial-1")}
    assert found.orphans == []
    answers = {a["text"]: a for a in notes(tmp_path, "answers")}
    done = [r for r in found if r.fate != "failed"]  # AReaL cancels what it began too much
    for rollout in done:
        answer = answers[written(rollout)[0]]
        assert flat(rollout) == answer["prompt"] + answer["ids"]
        assert rollout.policy_version == answer["version"]
        assert rollout.reward == float(sum(answer["ids"]) % 3)

    trained = notes(tmp_path, "trained")
    by_ids = {tuple(flat(r)): r for r in found if r.fate == "trained"}
    assert len(by_ids) == len(trained) == 3 * 2 * 3  # steps, prompts, samples
    for row in trained:
        rollout = by_ids[tuple(row["ids"])]
        assert rollout.trained_step == row["version"]
        wrote = len(answers[written(rollout)[0]]["ids"])
        assert flat(rollout, "advantage")[-wrote:] == row["advantages"][-wrote - 1 : -1]

    fates = Counter((r.task, r.fate) for r in done if r.split == "train")
    assert fates["puzzle-2", "rejected"] >= 3  # the dynamic filter's
    assert fates["puzzle-2", "trained"] == 0
    evals = [r for r in done if r.split == "eval"]
    assert Counter(r.task for r in evals) == {"check-0": 3, "check-1": 3}
    losses = {step: values["loss"] for step, values in found.metrics.items()}
    assert losses == {0: 0.5, 1: 1.5, 2: 2.5}
    if mode == "spmd":
        assert silent(own_store) >= LOOKED
        assert named_faults(own_store, tmp_path / "planted") >= LOOKED
