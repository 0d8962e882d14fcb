"""Which run a training is recorded to: another name is another run, and so is a second training."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout, capture
from rollscope.capture import Run

from . import children


def trained(name: str | None = None, *, rollouts: int = 1, **how: bool) -> Run:
    """A training joins, and logs what every training logs: the same keys."""
    run = capture.join("p", name, adapter="x", asked=True, **{"anew": True, **how})
    assert run is not None
    run.log([Rollout(key=f"1/{n}", step=1, task="t", index=n) for n in range(rollouts)])
    return run


def test_another_name_is_another_run(own_store: Path) -> None:
    first, second = trained("a"), trained("b")
    assert [first.name, second.name] == ["a", "b"]
    assert first.is_on, "the first goes on: two trainings may run at once"
    assert capture.join("p", "a", adapter="x") is first
    assert capture.join(adapter="x") is second is capture.active()
    first.finish()
    second.finish()
    assert runs(own_store) == {"a": 1, "b": 1}


def test_a_run_that_a_person_began_is_joined_whatever_the_trainer_calls_it(
    own_store: Path,
) -> None:
    with rollscope.init(project="mine", run="own") as own:
        assert trained("a") is own and trained("b") is own
        assert own.trainings["x"] == 2
        named = trained("c", named=True)
        assert (named.project, named.name) == ("p", "c")
        assert trained("d") is own
        named.finish()


def test_a_second_training_under_one_name_is_a_run_of_its_own(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = trained("r"), trained("r")
    second.finish()
    third = trained("r")
    assert [run.name for run in (first, second, third)] == ["r", "r-2", "r-3"]
    assert "recording p/r-2 (there is a p/r already)" in capfd.readouterr().err
    for run in (first, third):
        run.finish()
    assert runs(own_store) == {"r": 1, "r-2": 1, "r-3": 1}


def test_a_training_that_goes_on_from_a_checkpoint_goes_on_in_its_run(own_store: Path) -> None:
    first = trained("r")
    assert trained("r", anew=False) is first
    first.finish()
    with trained("r", anew=False) as again:
        assert again.name == "r"


def test_finish_ends_every_run_of_the_process(own_store: Path) -> None:
    first, second = trained("a"), trained("b")
    rollscope.finish()
    assert not first.is_on and not second.is_on and capture.active() is None
    assert runs(own_store) == {"a": 1, "b": 1}


def test_another_adapter_in_the_same_training_shares_the_run(own_store: Path) -> None:
    with trained("r") as run:
        assert capture.join("p", "r", adapter="y", asked=True, anew=True) is run


PROGRAM = """
from rollscope import capture, Rollout
run = capture.join("p", "r", adapter="x", asked=True, anew={anew})
for n in range({rollouts}):
    run.log(Rollout(key=f"{{os.getpid()}}/{{n}}", step=1, task="t", group="g", index=n))
run.flush()
{end}
"""


def program(end: str = "", anew: bool = True, rollouts: int = 2) -> None:
    started = children.start(PROGRAM.format(end=end, anew=anew, rollouts=rollouts))
    children.told(started, None if end else 0)


def runs(store: Path) -> dict[str, int]:
    """How many rollouts each run has."""
    opened = rollscope.open(store)
    try:
        return dict(opened.sql("SELECT run, count(*) FROM rollouts GROUP BY run").fetchall())
    finally:
        opened.close()


def test_a_script_that_runs_again_makes_a_run_of_its_own(own_store: Path) -> None:
    for _ in range(3):
        program()
    assert runs(own_store) == {"r": 2, "r-2": 2, "r-3": 2}


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_a_restart_after_a_crash_goes_on_in_the_same_run(own_store: Path, end: str) -> None:
    program(end)
    program()
    assert runs(own_store) == {"r": 4}
    program()
    assert runs(own_store) == {"r": 4, "r-2": 2}


def test_one_that_goes_on_from_a_checkpoint_continues_a_run_that_ended(own_store: Path) -> None:
    program()
    program(anew=False)
    assert runs(own_store) == {"r": 4}


def test_the_same_launch_continues_a_run_that_ended(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "job-7")
    program()
    program(rollouts=3)
    assert runs(own_store) == {"r": 5}


def test_a_requeued_job_continues_its_run(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    program()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    program()
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    program()
    assert runs(own_store) == {"r": 4, "r-2": 2}


def test_a_run_that_recorded_nothing_gives_its_name_away(own_store: Path) -> None:
    program(rollouts=0)
    program()
    assert runs(own_store) == {"r": 2}


def test_processes_of_one_launch_find_the_same_run(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program()
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "job-8")
    processes = [children.start(PROGRAM.format(end="", anew=True, rollouts=n)) for n in (2, 3)]
    for process in processes:
        children.told(process)
    assert runs(own_store) == {"r": 2, "r-2": 5}


def test_a_notebook_may_train_in_processes_of_its_own(own_store: Path) -> None:
    """They inherit its launch. Each is a training that ended, not a worker of the notebook."""
    with rollscope.init(project="p", run="notebook"):
        program()
        program()
    assert runs(own_store) == {"r": 2, "r-2": 2}


def test_init_continues_a_run_that_ended_and_says_so(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Somebody may want to add an evaluation to it, or facts."""
    program()
    with rollscope.init(project="p", run="r") as run:
        assert run.name == "r"
    assert "p/r, which had ended" in capfd.readouterr().err


def test_a_person_who_labels_rollouts_keeps_no_run_going(own_store: Path) -> None:
    program()
    with rollscope.init(project="p", run="r") as run:
        run.annotate("some-id", label="good")
        run.flush()
        program()
    assert runs(own_store) == {"r": 2, "r-2": 2}
