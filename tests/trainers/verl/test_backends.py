"""verl's own traces go on unchanged beside Rollscope: the real MLflow, Trackio and Weave.

verl's own configuration turns them on. Each keeps its traces where it always does: MLflow in
a SQLite store, Trackio in its own files; Weave's client sends to a receiver on this machine,
which stands for its hosted service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import run_legacy
from verl.utils.rollout_trace import RolloutTraceConfig
from world import SameAgain, dataset_rows, make_config, stored

import rollscope

VOLATILE = {"request_id", "metrics", "timing", "backend"}
"""What differs between two equal runs of verl: random names and times."""


def same_always(value: Any) -> Any:
    """A trace without what is random in it. Texts that hold JSON are looked into."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return same_always(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        return {k: same_always(v) for k, v in sorted(value.items()) if k not in VOLATILE}
    if isinstance(value, (list, tuple)):
        return [same_always(item) for item in value]
    return value


def in_order(traces: list[Any]) -> list[str]:
    return sorted(json.dumps(same_always(trace), sort_keys=True, default=str) for trace in traces)


def mlflow_traces(project: str) -> list[str]:
    """Every span of every trace: its name, its parent's, what went in and came out."""
    import mlflow

    mlflow.flush_trace_async_logging()
    found = []
    experiment = mlflow.get_experiment_by_name(project)
    for trace in mlflow.search_traces(
        locations=[experiment.experiment_id], return_type="list", max_results=100
    ):
        names = {span.span_id: span.name for span in trace.data.spans}
        tags = {k: v for k, v in trace.info.tags.items() if not k.startswith("mlflow.")}
        spans = [
            [s.name, names.get(s.parent_id), s.inputs, s.outputs, str(s.status.status_code)]
            for s in trace.data.spans
        ]
        found.append({"tags": tags, "state": str(trace.info.state), "spans": spans})
    return in_order(found)


def trackio_traces(project: str) -> list[str]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    trackio.finish()
    traces = SQLiteStorage.get_traces(project, run="tiny", limit=1000)
    keep = ("key", "name", "step", "messages", "metadata")
    return in_order([{k: trace[k] for k in keep if k in trace} for trace in traces])


def weave_traces(folder: Path) -> list[str]:
    from weave.trace.context.weave_client_context import get_weave_client

    get_weave_client().flush()
    text = (folder / "received").read_text(errors="replace")
    decoder = json.JSONDecoder()
    calls: dict[str, dict[str, Any]] = {}
    for found in re.finditer(r'\{"batch":', text):  # other requests bring files, in parts
        body, _ = decoder.raw_decode(text, found.start())
        for item in body["batch"]:
            told = item.get("req", item)  # a call's beginning, its end, or all of it
            told = told.get("start") or told.get("end") or told
            calls.setdefault(told["id"], {}).update(told)
    names = {id: call.get("op_name", "").split(":")[0] for id, call in calls.items()}
    keep = ("inputs", "attributes", "output", "exception")
    return in_order(
        [
            [names[id], names.get(call.get("parent_id")), {k: call.get(k) for k in keep}]
            for id, call in calls.items()
        ]
    )


@pytest.fixture(autouse=True)
def verls_own_state() -> Iterator[None]:
    """verl keeps one configuration of its traces for the whole process."""
    yield
    RolloutTraceConfig.reset()


def run(model: Path, backend: str, project: str) -> None:
    RolloutTraceConfig.reset()
    trace = "actor_rollout_ref.rollout.trace"
    config = make_config(
        model,
        f"{trace}.backend={backend}",
        f"{trace}.project_name={project}",
        f"{trace}.token2text=True",
    )
    run_legacy(config, dataset_rows(2, 2), engine=SameAgain)


def check(before: list[str], during: list[str], store: Path, fewest: int) -> None:
    assert len(before) >= fewest
    assert before == during
    assert len(stored(store)) == 4


def with_and_without(
    model: Path, backend: str, read: Callable[[str], list[str]]
) -> tuple[list[str], list[str]]:
    run(model, backend, "without")
    before = read("without")
    with rollscope.init(project="p", run="r"):
        run(model, backend, "with")
        during = read("with")
    return before, during


def test_mlflow_has_the_same_traces_with_and_without_rollscope(
    model: Path, own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    before, during = with_and_without(model, "mlflow", mlflow_traces)
    check(before, during, own_store, fewest=4)
    spans = json.loads(before[0])["spans"]
    assert [s[:2] for s in spans].count(["SameAgain.generate", "ToolAgentLoop.run"]) == 0
    assert [s[:2] for s in spans].count(["Engine.generate", "ToolAgentLoop.run"]) == 2


def test_trackio_has_the_same_traces_with_and_without_rollscope(
    model: Path, own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    before, during = with_and_without(model, "trackio", trackio_traces)
    check(before, during, own_store, fewest=20)


def test_weave_is_sent_the_same_calls_with_and_without_rollscope(
    model: Path, own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    weave = pytest.importorskip("weave")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "bench"))
    import weave_receiver

    def init(project: str) -> Any:
        (tmp_path / project).mkdir()
        return weave_receiver.client(tmp_path / project)

    monkeypatch.setattr(weave, "init", init)  # the hosted service wants a login
    before, during = with_and_without(model, "weave", lambda p: weave_traces(tmp_path / p))
    check(before, during, own_store, fewest=20)
