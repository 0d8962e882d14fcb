"""Which run of MLflow the traces belong to, if the trainer opens one late, or never."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

import rollscope
from rollscope import Message, Rollout
from rollscope.capture.setup import resolve
from rollscope.model import Rollout as StoredRollout
from rollscope.sinks import Target
from rollscope.sinks import state as states
from rollscope.sinks.mlflow import MLflow
from sinks.conftest import run_dir, wait_complete, wait_for

pytestmark = pytest.mark.usefixtures("own_mlflow")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats come faster than in earnest, so that nobody waits for them."""

    def lively(*args: Any, **kwargs: Any) -> Any:
        return resolve(*args, **kwargs)._replace(beat=0.2)

    monkeypatch.setattr("rollscope.capture.begin.resolve", lively)


def some(count: int, step: int, who: str = "w") -> list[Rollout]:
    said = [Message(role="user", content="?"), Message(role="assistant", content="!")]
    return [
        Rollout(key=f"{who}-{step}-{n}", step=step, index=n, reward=1.0, messages=said)
        for n in range(count)
    ]


def sent(store: Path) -> int:
    state = states.read(run_dir(store), "mlflow")
    return state.counts.sent if state is not None and state.complete == 0 else 0


def runs(uri: str, experiment: str) -> dict[str, Any]:
    """The runs of an experiment by name, each with its traces' rollouts."""
    client = MlflowClient(uri)
    id = client.get_experiment_by_name(experiment).experiment_id
    return {run.info.run_name: run for run in client.search_runs([id])}


def rollouts_of(uri: str, experiment: str, run: Any = None) -> Counter[str]:
    """How often each rollout is there."""
    client = MlflowClient(uri)
    id = client.get_experiment_by_name(experiment).experiment_id
    run_id = None if run is None else run.info.run_id
    found = client.search_traces(locations=[id], run_id=run_id, max_results=500)
    return Counter(trace.info.client_request_id for trace in found)


def open_theirs(uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("theirs")
    mlflow.start_run(run_name="brave")


@pytest.mark.usefixtures("soon")
def test_a_run_that_the_trainer_opens_later_in_another_experiment_gets_every_rollout(
    own_store: Path, uri: str
) -> None:
    with rollscope.init(project="p", run="r", sinks=[f"mlflow:tracking_uri={uri}"]) as run:
        ids = run.log(some(12, step=1))
        wait_for(lambda: sent(own_store) == 12, "the first rollouts are sent")
        assert rollouts_of(uri, "p") == Counter(ids)
        open_theirs(uri)
        theirs = runs(uri, "theirs")["brave"]
        wait_for(lambda: len(rollouts_of(uri, "theirs", theirs)) == 12, "they come along")
    wait_complete(own_store, "mlflow")
    assert rollouts_of(uri, "theirs", theirs) == Counter(ids)
    assert rollouts_of(uri, "p") == Counter(), "each rollout is there once"
    (ours,) = runs(uri, "p").values()
    assert (ours.info.run_name, ours.info.status) == ("r", "FINISHED")
    assert theirs.info.run_id in ours.data.tags["mlflow.note.content"]


def test_what_people_wrote_on_an_earlier_trace_stays_when_the_rollouts_move(uri: str) -> None:
    client = MlflowClient(uri)
    early = MLflow(Target("p", "r"), {"tracking_uri": uri})
    early.open()
    early.send([StoredRollout(id=id, time=5.0) for id in ("a", "b")])
    early.close()
    kept = next(
        trace.info.trace_id
        for trace in client.search_traces(
            locations=[client.get_experiment_by_name("p").experiment_id]
        )
        if trace.info.client_request_id == "a"
    )
    mlflow.set_tracking_uri(uri)
    mlflow.log_feedback(trace_id=kept, name="odd", value=True)
    open_theirs(uri)
    late = MLflow(Target("p", "r", dict(MLflow.hints())), {"tracking_uri": uri})
    late.open()
    late.send([StoredRollout(id=id, time=5.0) for id in ("a", "b")])
    late.close()
    assert rollouts_of(uri, "theirs") == Counter("ab")
    assert rollouts_of(uri, "p") == Counter("a")


WORKER = """
import sys, time, rollscope
from pathlib import Path
from rollscope import Message, Rollout
who, uri, go = sys.argv[1:]
said = [Message(role="user", content="?"), Message(role="assistant", content="!")]
with rollscope.init(project="p", run="r", sinks=[f"mlflow:tracking_uri={uri}"]) as run:
    for step in (1, 2):
        run.log([Rollout(key=f"{who}-{step}-{n}", step=step, index=n, reward=1.0, messages=said)
                 for n in range(2)])
        while step == 1 and not Path(go).exists():
            time.sleep(0.1)
"""


@pytest.mark.usefixtures("soon")
def test_with_eight_workers_and_a_late_driver_each_rollout_is_there_once(
    own_store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "l")
    go = tmp_path / "go"
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(n), uri, str(go)]) for n in range(8)
    ]
    with rollscope.init(project="p", run="r", sinks=[f"mlflow:tracking_uri={uri}"]) as run:
        run.metrics(1, {"loss": 0.5})
        wait_for(lambda: sent(own_store) == 16, "the workers' first rollouts are sent")
        open_theirs(uri)
        go.touch()
        for worker in workers:
            assert worker.wait(500) == 0
    wait_complete(own_store, "mlflow")
    found = rollouts_of(uri, "theirs", runs(uri, "theirs")["brave"])
    assert (len(found), set(found.values())) == (32, {1})
    assert rollouts_of(uri, "p") == Counter()
    assert [run.info.status for run in runs(uri, "p").values()] == ["FINISHED"]


# -- step metrics ---------------------------------------------------------------------------


def points(uri: str, run: Any, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(uri).get_metric_history(run.info.run_id, name)]


@pytest.mark.usefixtures("soon")
def test_metrics_go_along_if_the_run_is_ours_and_each_point_once(own_store: Path, uri: str) -> None:
    for step in (1, 3):  # a restart goes on
        with rollscope.init(project="p", run="r", sinks=[f"mlflow:tracking_uri={uri}"]) as run:
            run.log(some(2, step=step))
            run.metrics(step, {"loss": 0.5 / step, "reward/mean@8": 1.0, "grad": math.nan})
            run.metrics(step + 1, {"loss": 0.25})
        state = wait_complete(own_store, "mlflow")
    assert state.counts.failed == 0, state.error
    (ours,) = runs(uri, "p").values()
    assert points(uri, ours, "loss") == [(1, 0.5), (2, 0.25), (3, 0.5 / 3), (4, 0.25)]
    assert points(uri, ours, "reward/mean_at_8") == [(1, 1.0), (3, 1.0)]
    assert [step for step, _ in points(uri, ours, "grad")] == [1, 3]


@pytest.mark.usefixtures("soon")
def test_a_run_of_the_trainer_keeps_its_own_metrics(own_store: Path, uri: str) -> None:
    open_theirs(uri)
    mlflow.log_metric("loss", 0.125, step=1)
    with rollscope.init(project="p", run="r", sinks=["mlflow"]) as run:
        run.log(some(2, step=1))
        run.metrics(1, {"loss": 0.5, "other": 1.0})
    wait_complete(own_store, "mlflow")
    theirs = runs(uri, "theirs")["brave"]
    assert theirs.data.metrics == {"loss": 0.125}
    assert len(rollouts_of(uri, "theirs", theirs)) == 2


def test_an_export_takes_the_metrics_along(own_store: Path, uri: str) -> None:
    from rollscope import cli

    with rollscope.init(project="p", run="r") as run:
        run.log(some(2, step=1))
        run.metrics(1, {"loss": 0.5})
    for _ in range(2):
        assert cli.main(["export", f"mlflow:tracking_uri={uri}", "--dir", str(own_store)]) == 0
    (ours,) = runs(uri, "p").values()
    assert points(uri, ours, "loss") == [(1, 0.5)]


# -- while it is imported ---------------------------------------------------------------------

ASKED_ALL_THE_TIME = """
import sys, threading, importlib
from rollscope.sinks import load
name = sys.argv[1]
sink, done = load(name), threading.Event()

def trainer():
    importlib.import_module(name)
    done.set()

threading.Thread(target=trainer, daemon=True).start()
sys.setswitchinterval(1e-5)
while not done.is_set():
    sink.hints()
print(dict(sink.hints()))
"""


@pytest.mark.parametrize("name", ["mlflow", "trackio", "weave"])
def test_nothing_is_wrong_while_the_trainer_imports_it(name: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", ASKED_ALL_THE_TIME, name], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
