"""Restarts and workers, as plain programs make them: who hides whom, seen through the store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rollscope
from rollscope.checks import doctor

PROGRAM = """
import os, sys, rollscope
run = rollscope.init(project="p", run="r", dir=sys.argv[1])
for step in range(int(sys.argv[2]), int(sys.argv[3])):
    run.log(rollscope.Rollout(step=step, task="q", index=0, split="train", worker=sys.argv[4]))
run.flush()
end = sys.argv[5]
if end == "kill":
    os.kill(os.getpid(), 9)
if end == "raise":
    raise RuntimeError("boom")
"""


def program(folder: Path, first: int, last: int, name: str, end: str, **env: str) -> None:
    """One run of the program, to its end."""
    words = [str(folder), str(first), str(last), name, end]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE_LAUNCH")}
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env={**kept, **env}, capture_output=True
    )


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_a_restart_after_a_crash_shows_repeated_steps_once(tmp_path: Path, end: str) -> None:
    program(tmp_path, 0, 8, "first", end)
    program(tmp_path, 5, 10, "second", "return")
    store = rollscope.open(tmp_path)
    shown = sorted((row.step, row.worker) for row in store.rollouts())
    assert shown == [(s, "first" if s < 5 else "second") for s in range(10)]
    assert store.rollouts("step:5..7").counts().superseded == 3
    assert store.rollouts("launch:/./ worker:first").count() == 8, "the old ones are a query away"


def test_the_doctor_counts_what_a_killed_writer_wrote_after_its_last_heartbeat(
    tmp_path: Path,
) -> None:
    program(tmp_path, 0, 8, "first", "kill")
    (writer,) = [f.text for f in doctor.examine(rollscope.open(tmp_path).reader) if f.run]
    assert "ended without finishing; 8 rollouts" in writer


def test_plain_processes_one_after_another_never_hide_each_other(tmp_path: Path) -> None:
    for number in range(4):
        program(tmp_path, 0, 3, f"w{number}", "return")
    assert rollscope.open(tmp_path).rollouts().count() == 12


def test_a_named_launch_is_a_restart_even_after_an_end_in_order(tmp_path: Path) -> None:
    program(tmp_path, 0, 4, "first", "return", ROLLSCOPE_LAUNCH="one")
    program(tmp_path, 2, 6, "second", "return", ROLLSCOPE_LAUNCH="two")
    assert rollscope.open(tmp_path).rollouts().count() == 6


def test_a_requeue_under_one_slurm_job_is_a_new_launch(tmp_path: Path) -> None:
    program(tmp_path, 0, 4, "first", "kill", SLURM_JOB_ID="7", SLURM_RESTART_COUNT="0")
    program(tmp_path, 2, 6, "second", "return", SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1")
    rows = list(rollscope.open(tmp_path).rollouts())
    assert len(rows) == 6
    assert len({row.launch for row in rows}) == 2
