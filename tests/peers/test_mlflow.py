"""MLflow's own tracking server on SQLite, read back by its client and looked at in its page."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import sums
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from serving import served
from sums import ANSWER, ASKED, SAID, WROTE

import rollscope
import rollscope.demo
from rollscope.demo.trainer import Plan
from rollscope.model import Error, Message, Rollout, Span
from rollscope.sinks import Refused, Target
from rollscope.sinks.mlflow import MLflow
from sinks.conftest import wait_complete

pytestmark = pytest.mark.usefixtures("own_mlflow")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real `mlflow server` with a fresh SQLite store."""
    folder = tmp_path_factory.mktemp("mlflow")
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true",
           "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # fmt: skip

    def command(port: int) -> list[str]:
        return [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
            "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
            "--artifacts-destination", str(folder / "artifacts"),
        ]  # fmt: skip

    with served(command, env, "/health", folder / "log") as address:
        yield address


@pytest.fixture
def client(server: str) -> MlflowClient:
    return MlflowClient(server)


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """An experiment of the test's own."""
    return request.node.name


def opened(server: str, project: str, hints: Any = None, **options: str) -> MLflow:
    sink = MLflow(Target(project, "grpo", hints or {}), {"tracking_uri": server, **options})
    sink.open()
    return sink


def agent(project: str = "math", **more: Any) -> Rollout:
    told = {
        "environment": "shop",
        "reward_texts": {"format": "no box"},
        "reference": {"answer": 4},
    }
    return sums.agent(**{"project": project} | told | more)


def traces(client: MlflowClient, project: str, **more: Any) -> list[Any]:
    found = client.get_experiment_by_name(project)
    return list(client.search_traces(locations=[found.experiment_id], **more))


def test_a_rollout_is_read_back_by_the_client_as_it_was(
    server: str, client: MlflowClient, project: str
) -> None:
    sink = opened(server, project)
    sink.send([agent(project)])
    (trace,) = traces(client, project)
    info = trace.info
    assert (info.client_request_id, info.state.value) == ("r-1", "OK")
    assert (info.request_time, info.execution_duration) == (1_700_000_000_000, 10_000)
    assert (info.request_preview, info.response_preview) == ("2+2?", "It is 4.")
    five = {"step": "3", "sample_index": "q-7", "rollout_n": "2", "experiment_name": "grpo",
            "validate": "False"}  # fmt: skip
    assert {name: info.tags[name] for name in five} == five
    assert info.trace_metadata["mlflow.trace.session"] == "g-7"
    assert json.loads(info.trace_metadata["mlflow.trace.tokenUsage"]) == {
        "input_tokens": 9, "output_tokens": 3, "total_tokens": 12,
    }  # fmt: skip

    root, first, tool, last = trace.data.spans
    assert [s.name for s in (root, first, tool, last)] == ["shop", "assistant", "add", "assistant"]
    assert [s.span_type for s in (root, first, tool, last)] == [
        "AGENT", "CHAT_MODEL", "TOOL", "CHAT_MODEL",
    ]  # fmt: skip
    assert [s.parent_id for s in (root, first, tool, last)] == [None] + 3 * [root.span_id]
    second = 10**9
    assert (first.start_time_ns, first.end_time_ns) == (
        1_700_000_001 * second, 1_700_000_002 * second + second // 2,
    )  # fmt: skip
    assert tool.start_time_ns == tool.end_time_ns == first.end_time_ns
    assert tool.get_attribute("rollscope.times") == "not known"
    assert first.get_attribute("rollscope.times") is None

    wrote = WROTE | {"reasoning": WROTE["reasoning_content"]}  # MLflow's name for it
    del wrote["reasoning_content"]
    assert first.inputs == {"messages": [ASKED]}
    assert first.outputs == {
        "choices": [{"index": 0, "message": wrote, "finish_reason": "tool_calls"}]
    }
    assert (tool.inputs, tool.outputs) == ({"a": 2, "b": 2}, "4")
    assert last.inputs == {"messages": [ASKED, wrote, ANSWER]}
    assert root.inputs == {"messages": [ASKED]}
    assert root.outputs["messages"] == [wrote, ANSWER, SAID]
    assert root.get_attribute("rollscope.step") == 3
    assert root.get_attribute("rollscope.reward") == 1.0

    judged = {(a.name, a.span_id): a for a in info.assessments}
    assert judged["reward", None].value == 1.0
    assert (judged["format", None].value, judged["format", None].rationale) == (0.5, "no box")
    assert judged["advantage", None].value == -0.25
    assert judged["turn_reward", first.span_id].value == 0.25
    assert judged["reference", None].expectation.value == {"answer": 4}
    assert len(judged) == 5


def test_verls_filters_find_what_they_say(server: str, client: MlflowClient, project: str) -> None:
    sink = opened(server, project)
    sink.send(
        [agent(project, id="a", step=1), agent(project, id="b", step=2),
         agent(project, id="c", step=1, split="eval", index=0)]
    )  # fmt: skip

    def found(query: str) -> set[str]:
        return {t.info.client_request_id for t in traces(client, project, filter_string=query)}

    assert found("tags.step = '1'") == {"a", "c"}
    assert found("tags.step = '1' AND tags.validate = 'False'") == {"a"}
    assert found("tags.sample_index = 'q-7' AND tags.rollout_n = '0'") == {"c"}
    assert found("tags.experiment_name = 'grpo'") == {"a", "b", "c"}


def test_what_is_not_known_is_not_there(server: str, client: MlflowClient, project: str) -> None:
    opened(server, project).send([Rollout(id="bare", project=project, time=5.0)])
    (trace,) = traces(client, project)
    own = {name for name in trace.info.tags if not name.startswith("mlflow.")}
    assert own == {"rollscope.id"}
    assert trace.info.assessments == []
    assert trace.info.execution_duration is None
    assert "mlflow.trace.tokenUsage" not in trace.info.trace_metadata
    (root,) = trace.data.spans
    assert (root.inputs, root.outputs) == (None, None)


def test_numbers_that_json_has_not_and_half_characters_arrive(
    server: str, client: MlflowClient, project: str
) -> None:
    odd = agent(project, reward=float("nan"), meta={"n": float("inf"), "big": 2**80},
                messages=[Message(role="user", content="half \ud800"),
                          Message(role="assistant", content="日本 \U0001f600")])  # fmt: skip
    opened(server, project).send([odd])
    (trace,) = traces(client, project)
    assert {a.name: a.value for a in trace.info.assessments if a.feedback}["reward"] == "NaN"
    root = trace.data.spans[0]
    assert root.get_attribute("rollscope.meta") == {"n": "Infinity", "big": str(2**80)}
    assert root.inputs["messages"][0]["content"] == "half ?"
    assert root.outputs["messages"][0]["content"] == "日本 \U0001f600"


def test_failures_are_errors_there_and_their_spans_say_which(
    server: str, client: MlflowClient, project: str
) -> None:
    error = Error(kind="grader", type="Timeout", text="too slow")
    spans = [
        Span(name="loop", id="1", inputs={"prompt_ids": list(range(1000))}, outputs=[1, 2]),
        Span(name="grade", id="2", parent="1", error=error),
    ]
    opened(server, project).send([agent(project, spans=spans, error=error, fate="failed")])
    (trace,) = traces(client, project)
    spans = {s.name: s for s in trace.data.spans}
    assert trace.info.state.value == "ERROR"
    assert trace.info.tags["rollscope.fate"] == "failed"
    assert spans["grade"].parent_id == spans["loop"].span_id
    assert spans["grade"].status.status_code.value == "ERROR"
    assert spans["grade"].events[0].attributes["exception.message"] == "too slow"
    assert spans["loop"].inputs == {"prompt_ids": "[1,000 numbers, not sent]"}
    assert spans["loop"].outputs == [1, 2]
    assert spans["loop"].status.status_code.value == "OK"


def test_later_facts_update_the_trace_and_keep_what_people_wrote(
    server: str, client: MlflowClient, project: str
) -> None:
    sink = opened(server, project)
    sink.send([agent(project, reward=None, rewards={}, reward_texts={}, advantage=None)])
    (trace,) = traces(client, project)
    client.set_trace_tag(trace.info.trace_id, "mine", "keep")
    labelled = agent(project, meta={"labels": ["odd", "short"]})
    assert sink.update(labelled)
    (trace,) = traces(client, project, filter_string="tags.`rollscope.labels` LIKE '%odd%'")
    later = agent(project, reward=2.0, fate="trained", trained_step=4)
    assert sink.update(later)
    assert sink.update(later)
    (trace,) = traces(client, project)
    assert "rollscope.labels" not in trace.info.tags  # taken back
    assert {a.name: a.value for a in trace.info.assessments if a.feedback} == {
        "reward": 2.0, "format": 0.5, "advantage": -0.25, "turn_reward": 0.25,
    }  # fmt: skip
    assert len(trace.info.assessments) == 5
    tags = trace.info.tags
    assert (tags["rollscope.fate"], tags["rollscope.trained_step"], tags["mine"]) == (
        "trained", "4", "keep",
    )  # fmt: skip
    assert len(trace.data.spans) == 4
    assert trace.data.spans[0].get_attribute("rollscope.reward") == 2.0


def test_sending_again_changes_nothing_and_the_server_can_be_asked(
    server: str, client: MlflowClient, project: str
) -> None:
    sink = opened(server, project)
    sink.send([agent(project)])
    (before,) = traces(client, project)
    assert sink.holds(["r-1", "r-2"]) == {"r-1"}
    sink.send([agent(project)])
    (after,) = traces(client, project)
    assert [s.to_dict() for s in after.data.spans] == [s.to_dict() for s in before.data.spans]
    assert len(after.info.assessments) == len(before.info.assessments)
    assert sink.update(agent(project, id="gone")) is False  # deleted there, or never sent


def test_a_trace_that_is_refused_for_good_does_not_hold_up_the_others(
    server: str, client: MlflowClient, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(server, project)
    start = sink._tracing.start_trace

    def refuse(info: Any) -> Any:
        if info.client_request_id == "b":
            raise MlflowException("not valid here", INVALID_PARAMETER_VALUE)
        return start(info)

    monkeypatch.setattr(sink._tracing, "start_trace", refuse)
    with pytest.raises(Refused, match="not valid here") as refused:
        sink.send([agent(project, id=id) for id in "abc"])
    assert refused.value.ids == {"b"}
    assert {t.info.client_request_id for t in traces(client, project)} == {"a", "c"}


def test_long_names_are_cut_to_what_mlflow_takes(
    server: str, client: MlflowClient, project: str
) -> None:
    long = agent(project, environment="x" * 5000, group="g" * 5000, fate_reason="y" * 9000)
    opened(server, project).send([long])
    (trace,) = traces(client, project)
    assert trace.info.tags["rollscope.fate_reason"] == "y" * 4000


def test_a_server_that_is_not_there_is_an_error_and_never_a_silent_loss(project: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            opened(address, project)


# -- the training run ----------------------------------------------------------------------


WORKER = """
import rollscope
from rollscope import Message, Rollout
with rollscope.init(project="p", run="r", sinks=["mlflow"]) as run:
    said = [Message(role="user", content="?"), Message(role="assistant", content="!")]
    run.log([Rollout(key=f"k{n}", step=1, index=n, reward=1.0, messages=said) for n in range(4)])
"""


def test_traces_of_the_workers_belong_to_the_run_that_the_driver_opened_in_another_thread(
    server: str,
    client: MlflowClient,
    project: str,
    own_store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "l")
    mlflow.set_tracking_uri(server)
    mlflow.set_experiment(project)
    ids: list[str] = []
    opened_it, may_end = threading.Event(), threading.Event()

    def track() -> None:
        ids.append(mlflow.start_run(run_name="theirs").info.run_id)
        opened_it.set()
        may_end.wait(300)
        mlflow.end_run()

    thread = threading.Thread(target=track)
    thread.start()
    assert opened_it.wait(120)
    worker = subprocess.Popen([sys.executable, "-c", WORKER])
    with rollscope.init(project="p", run="r", sinks=["mlflow"]) as run:
        run.metrics(1, {"loss": 0.5})
        assert worker.wait(300) == 0
    state = wait_complete(own_store, "mlflow")
    may_end.set()
    thread.join()
    assert (state.counts.sent, state.error) == (4, None)
    found = mlflow.search_traces(run_id=ids[0], return_type="list")
    assert sorted(t.info.tags["rollout_n"] for t in found) == ["0", "1", "2", "3"]


def test_without_a_run_of_the_trainer_one_is_made_and_found_again(
    server: str, client: MlflowClient, project: str
) -> None:
    sink = opened(server, project)
    sink.send([agent(project, id="a")])
    sink.close()
    again = opened(server, project)
    again.send([agent(project, id="b")])
    again.close()
    experiment = client.get_experiment_by_name(project).experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ("grpo", "FINISHED")
    found = client.search_traces(locations=[experiment], run_id=run.info.run_id)
    assert {t.info.client_request_id for t in found} == {"a", "b"}


def test_traces_that_were_sent_before_the_trainer_opened_its_run_belong_to_it_too(
    server: str, client: MlflowClient, project: str
) -> None:
    early = opened(server, project)
    early.send([agent(project, id="early")])
    early.close()
    experiment = client.get_experiment_by_name(project).experiment_id
    run_id = client.create_run(experiment, run_name="theirs").info.run_id
    late = opened(server, project, {"run_id": run_id})
    late.send([agent(project, id="late")])
    found = client.search_traces(locations=[experiment], run_id=run_id)
    assert {t.info.client_request_id for t in found} == {"early", "late"}


def test_a_run_that_is_asked_for_and_not_there_is_said(server: str, project: str) -> None:
    with pytest.raises(ValueError, match="there is no run 'nope'"):
        opened(server, project, run_id="nope")


def test_a_deleted_experiment_is_said_with_what_to_do(
    server: str, client: MlflowClient, project: str
) -> None:
    client.delete_experiment(client.create_experiment(project))
    with pytest.raises(ValueError, match="restore"):
        opened(server, project)


def test_hints_tell_the_run_and_the_store_but_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tracking_uri" not in MLflow.hints() or MLflow.hints()["tracking_uri"]
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc")
    mlflow.set_tracking_uri("sqlite:///runs.db")
    assert MLflow.hints() == {"run_id": "abc", "tracking_uri": f"sqlite:///{Path.cwd()}/runs.db"}
    mlflow.set_tracking_uri("postgresql://me:secret@db/mlflow")
    assert MLflow.hints() == {"run_id": "abc"}


# -- MLflow's own page ---------------------------------------------------------------------


def test_the_page_of_the_run_shows_a_demo_run(
    server: str, client: MlflowClient, own_store: Path, page: Any, shots: Path
) -> None:
    from playwright.sync_api import expect

    plan = Plan("lr-1e-3", steps=1, rate=1e-3)
    rollscope.demo.run(own_store, plans=[plan], warm_steps=200, tasks=(48, 8), progress=str)
    store = rollscope.open(own_store)
    rows = store.rollouts("step:0 has:reward split:train tool:calculator", limit=6, order="task")
    found = [store.get(row.id) for row in rows]
    assert len(found) == 6
    sink = MLflow(Target("demo", plan.name), {"tracking_uri": server})
    sink.open()
    sink.send(found)
    sink.close()
    (run,) = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    page.set_viewport_size({"width": 1900, "height": 1000})
    address = f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}/traces"
    page.goto(address)
    expect(page.get_by_text("6 of 6", exact=True)).to_be_visible()

    first = found[0]
    (trace,) = traces(client, "demo", filter_string=f"tags.`rollscope.id` = '{first.id}'")
    page.goto(f"{address}?selectedEvaluationId={trace.info.trace_id}")
    page.reload()
    expect(page.get_by_role("tab", name="Inputs / Outputs")).to_be_visible()
    prompt = next(m for m in first.messages if m.role == "user")
    expect(page.get_by_text(prompt.content, exact=True).first).to_be_visible()
    for role in ("System", "User", "Assistant"):  # its chat view, not a tree of JSON
        expect(page.get_by_text(role, exact=True).first).to_be_visible()
    page.screenshot(path=shots / "mlflow.png")
