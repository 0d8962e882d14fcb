"""Which processes belong together, and what a child is told."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Rollout, Sample, capture
from rollscope.capture import begin
from rollscope.capture.launch import launch_name, worker_name
from rollscope.capture.setup import resolve

from . import children, reading


def test_a_launch_is_found_without_talking(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = launch_name()
    assert alone == launch_name()
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    first = launch_name()
    assert "slurm-77" in first
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    requeued = launch_name()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    torch = launch_name()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    restarted = launch_name()
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "mine")
    assert len({alone, first, requeued, torch, restarted, launch_name()}) == 6
    assert launch_name() == "mine"


def test_the_same_torchrun_id_given_again_is_another_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = launch_name()
    monkeypatch.setattr("rollscope.capture.launch.process_start", lambda pid: "another agent")
    assert launch_name() != first


def test_ray_session_and_job_name_the_launch_of_a_stand_in_for_ray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for Ray's module: Ray itself is tested with the trainers."""
    node = types.SimpleNamespace(session_name="session_2026")
    worker = types.SimpleNamespace(global_worker=types.SimpleNamespace(node=node))
    ray: Any = types.SimpleNamespace(
        is_initialized=lambda: True,
        get_runtime_context=lambda: types.SimpleNamespace(get_job_id=lambda: "01"),
        _private=types.SimpleNamespace(worker=worker),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert launch_name() == "session_2026-job01"


def test_processes_that_this_one_starts_share_its_launch(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "")
    with rollscope.init(project="p", run="r") as run:
        code = 'rollscope.init(project="p", run="r").annotate(key="k", advantage=0.5)'
        children.told(children.start(code))
        (id,) = run.log(Rollout(key="k", task="t"))
    assert {i.launch for i in reading.infos(own_store)} == {run.launch}
    (fact,) = reading.facts(own_store)
    assert fact["rollout"] == id  # one process logs, another annotates by key


def test_plain_processes_have_launches_of_their_own(own_store: Path) -> None:
    code = 'run = rollscope.init(project="p", run="r"); run.log(Rollout(step=1, task="t", index=0))'
    for _ in range(3):
        children.told(children.start(code))
    assert len({i.launch for i in reading.infos(own_store)}) == 3
    assert len(reading.rollouts(own_store)) == 3


def test_a_run_without_a_name_is_shared_by_its_launch(own_store: Path) -> None:
    with rollscope.init() as run:
        children.told(children.start("rollscope.init()"))
    assert {(i.project, i.run) for i in reading.infos(own_store)} == {("default", run.launch)}


def test_child_env_carries_a_run_to_another_machine(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rollscope.init(
        project="p", run="r", dir=own_store / "x", sample=Sample(groups_per_step=2), redact="email"
    ) as run:
        env = capture.child_env()
    assert env == {
        "ROLLSCOPE": "on",
        "ROLLSCOPE_DIR": str(own_store / "x"),
        "ROLLSCOPE_PROJECT": "p",
        "ROLLSCOPE_RUN": "r",
        "ROLLSCOPE_LAUNCH": run.launch,
        "ROLLSCOPE_SAMPLE": "groups_per_step=2,seed=0",
        "ROLLSCOPE_REDACT": "email",
        "ROLLSCOPE_MIN_FREE": "0",
        "ROLLSCOPE_SEAL": "off",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    joined = capture.join("ignored", "ignored", adapter="x")
    assert joined is not None
    assert joined.setup._replace(redactor=None) == run.setup._replace(
        redactor=None, redact=["email"]
    )
    joined.finish()


def test_a_worker_is_named_after_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_name().endswith(f":{os.getpid()}")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert worker_name() == "rank3"


def test_children_are_told_the_sinks_as_they_were_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = "trackio:space_id=u/s,groups_per_step=8"
    setup = resolve(
        "p", "r", dir=None, config=None, sample=None, redact=None, sinks=[asked], worker=None
    )
    run = rollscope.Run(setup, is_off=False)
    monkeypatch.setattr(begin, "_runs", [run])
    assert capture.child_env()["ROLLSCOPE_SINKS"] == asked
