"""Restarts and workers, as plain programs make them: who hides whom, seen through the store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rollscope
from rollscope.capture import trainings
from rollscope.checks import doctor

PROGRAM = """
import os, sys, time
true, ahead = time.time, float(os.environ.get("CLOCK_AHEAD", 0))
time.time = lambda: true() + ahead
import rollscope
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
    writer, lost = [f.text for f in doctor.examine(rollscope.open(tmp_path).reader) if f.run]
    assert "ended without finishing; 8 rollouts" in writer
    assert lost.startswith("1 process ended without finishing")


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


DAY = 86_400


@pytest.mark.parametrize("ahead", [-DAY, 0, DAY])
def test_a_restart_on_a_machine_with_another_clock_is_a_restart(tmp_path: Path, ahead: int) -> None:
    program(tmp_path, 0, 8, "first", "kill")
    program(tmp_path, 5, 10, "second", "kill", CLOCK_AHEAD=str(ahead))
    program(tmp_path, 9, 12, "third", "return")
    shown = sorted((row.step, row.worker) for row in rollscope.open(tmp_path).rollouts())
    workers = ["first"] * 5 + ["second"] * 4 + ["third"] * 3
    assert shown == list(enumerate(workers))


@pytest.mark.parametrize("ahead", [-DAY, DAY])
def test_launches_at_once_never_hide_each_other_whatever_their_clocks_say(
    tmp_path: Path, ahead: int
) -> None:
    """The first goes on after the second began and ended."""
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        run.log(rollscope.Rollout(step=0, task="q", index=0, split="train"))
        run.flush()
        program(tmp_path, 0, 2, "other", "kill", CLOCK_AHEAD=str(ahead))
        run.log(rollscope.Rollout(step=1, task="q", index=0, split="train"))
        run.flush()
        assert rollscope.open(tmp_path).rollouts().count() == 4


def test_a_second_training_on_a_machine_whose_clock_is_behind_gets_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    program(tmp_path, 0, 2, "first", "raise")
    program(tmp_path, 0, 2, "second", "return", CLOCK_AHEAD=str(-DAY))
    assert trainings.has_ended(tmp_path / "p" / "r"), "the last one came to its end in order"
