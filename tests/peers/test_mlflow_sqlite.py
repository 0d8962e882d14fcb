"""MLflow on a SQLite file without a server: who begins at once does not race."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rollscope.sinks.mlflow_sqlite import absolute, prepare

TRAINER = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("theirs")
with mlflow.start_run():
    mlflow.log_metric("loss", 1.0)
"""
FORWARDER = """
import sys, time
from rollscope.model import Rollout
from rollscope.sinks import Target
from rollscope.sinks.mlflow import MLflow
sink = MLflow(Target("ours", "run"), {"tracking_uri": sys.argv[1]})
for _ in range(600):
    try:
        sink.open()
        break
    except Exception as error:  # as the forwarding process does: later again
        print(repr(error))
        time.sleep(0.5)
sink.send([Rollout(id=sys.argv[2], time=1.0)])
sink.close()
"""


def test_forwarders_and_a_trainer_that_begin_at_once_on_a_fresh_sqlite_file_do_not_race(
    tmp_path: Path,
) -> None:
    uri = f"sqlite:///{tmp_path}/fresh.db"
    started = [
        subprocess.Popen([sys.executable, "-c", code, uri, str(n)], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for n, code in enumerate([FORWARDER, TRAINER, FORWARDER])
    ]  # fmt: skip
    for process in started:
        said, _ = process.communicate(timeout=500)
        assert process.returncode == 0, said
    client = MlflowClient(uri)
    assert len(client.search_runs([client.get_experiment_by_name("theirs").experiment_id])) == 1
    ours = client.get_experiment_by_name("ours").experiment_id
    found = client.search_traces(locations=[ours])
    assert {t.info.client_request_id for t in found} == {"0", "2"}
    assert [p.name for p in tmp_path.iterdir() if "fresh" in p.name] == ["fresh.db"]


def test_a_file_that_somebody_else_is_setting_up_is_left_alone(tmp_path: Path) -> None:
    half = tmp_path / "half.db"
    half.write_bytes(b"")
    with pytest.raises(BlockingIOError, match="being set up"):
        prepare(f"sqlite:///{half}")
    os.utime(half, (1, 1))  # and nothing happens to it any more
    prepare(f"sqlite:///{half}")


def test_addresses_mean_the_same_in_every_folder() -> None:
    assert absolute("sqlite:///a.db", "/x") == "sqlite:////x/a.db"
    assert absolute("sqlite:////a.db", "/x") == "sqlite:////a.db"
    assert absolute("mlruns", "/x") == "/x/mlruns"
    assert absolute("http://h:1", "/x") == "http://h:1"
    assert absolute("databricks", "/x") == "databricks"
