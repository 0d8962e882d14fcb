"""MLflow on a SQLite file without a server: who begins at once does not race."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rollscope.model import Rollout
from rollscope.sinks import Target
from rollscope.sinks import state as states
from rollscope.sinks.mlflow import MLflow
from rollscope.sinks.mlflow_sqlite import absolute, prepare
from sinks.conftest import run_dir, wait_for

TRAINER = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("theirs")
with mlflow.start_run():
    mlflow.log_metric("loss", 1.0)
"""
WORKER = """
import sys, rollscope
from rollscope import Message, Rollout
uri, run, worker = sys.argv[1:]
with rollscope.init(project="p", run=run, sinks=[f"mlflow:tracking_uri={uri}"]) as run:
    said = [Message(role="user", content="?"), Message(role="assistant", content="!")]
    run.log([Rollout(key=f"{worker}-{n}", step=1, index=n, reward=1.0, messages=said)
             for n in range(3)])
"""


def test_workers_of_two_runs_and_a_trainer_that_begin_at_once_on_a_fresh_file_do_not_race(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "l")
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    uri = f"sqlite:///{tmp_path}/fresh.db"
    commands = [[TRAINER, uri], *([WORKER, uri, run, worker] for run in "ab" for worker in "xyz")]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    for process in started:
        said, _ = process.communicate(timeout=500)
        assert process.returncode == 0, said

    def is_sent() -> bool:
        found = [states.read(run_dir(own_store, "p", run), "mlflow") for run in "ab"]
        return all(state is not None and state.complete == 3 for state in found)

    wait_for(is_sent, "everything is sent", 500)
    client = MlflowClient(uri)
    assert len(client.search_runs([client.get_experiment_by_name("theirs").experiment_id])) == 1
    ours = client.get_experiment_by_name("p").experiment_id
    runs = {run.info.run_name: run.info.run_id for run in client.search_runs([ours])}
    assert sorted(runs) == ["a", "b"]
    for run_id in runs.values():
        assert len(client.search_traces(locations=[ours], run_id=run_id)) == 9
    assert [p.name for p in tmp_path.iterdir() if "fresh" in p.name] == ["fresh.db"]


def test_a_file_that_somebody_else_is_setting_up_is_left_alone(tmp_path: Path) -> None:
    half = tmp_path / "half.db"
    half.write_bytes(b"")
    with pytest.raises(BlockingIOError, match="being set up"):
        prepare(f"sqlite:///{half}")
    os.utime(half, (1, 1))  # and nothing happens to it any more
    prepare(f"sqlite:///{half}")


def test_a_store_that_takes_no_spans_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow itself refuses it otherwise
    sink = MLflow(Target("p", "r"), {"tracking_uri": str(tmp_path / "mlruns")})
    sink.open()
    with pytest.raises(ValueError, match="must be a database"):
        sink.send([Rollout(id="a", time=1.0)])


def test_addresses_mean_the_same_in_every_folder() -> None:
    assert absolute("sqlite:///a.db", "/x") == "sqlite:////x/a.db"
    assert absolute("sqlite:////a.db", "/x") == "sqlite:////a.db"
    assert absolute("mlruns", "/x") == "/x/mlruns"
    assert absolute("http://h:1", "/x") == "http://h:1"
    assert absolute("databricks", "/x") == "databricks"
