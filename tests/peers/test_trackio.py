"""Trackio's own store and server, read back by Trackio itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trackio
from msgspec.structs import replace
from serving import served, started
from trackio.sqlite_storage import SQLiteStorage

import rollscope
from rollscope import Message, Rollout, cli
from rollscope.model import Span, ToolCall
from rollscope.sinks import Target
from rollscope.sinks import state as states
from rollscope.sinks.trackio import Trackio
from sinks.conftest import run_dir, stop_forwarding, wait_complete, wait_for


@pytest.fixture(autouse=True)
def own_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Trackio store of the test's own, here and in the forwarding process."""
    folder = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    monkeypatch.setenv("ROLLSCOPE_QUIET", "1")
    for name, module in list(sys.modules.items()):
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", folder)
    yield folder


TOKEN = "a-token-of-the-test"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Trackio's own server with a store of its own, in a process of its own; its address."""
    with served(command, own(tmp_path), "/version", tmp_path / "served.log") as address:
        yield address


def command(port: int | str) -> list[str]:
    show = f"trackio.show(open_browser=False, block_thread=True, server_port={port})"
    return [sys.executable, "-c", f"import trackio; {show}"]


def own(folder: Path) -> dict[str, str]:
    """The environment of a server with a store of its own."""
    return {**os.environ, "TRACKIO_DIR": str(folder / "served"), "TRACKIO_WRITE_TOKEN": TOKEN}


def ask(address: str, name: str, **values: Any) -> Any:
    """A call of Trackio's HTTP API."""
    answer = httpx.post(f"{address}/api/{name}", json={"args": [], "kwargs": values}, timeout=60)
    answer.raise_for_status()
    return answer.json()["data"]


def conversation(step: int = 3, **fields: Any) -> Rollout:
    return Rollout(
        step=step,
        split="train",
        task="q-1",
        index=2,
        reward=0.5,
        rewards={"correct": 1.0, "format": 0.0},
        advantage=-0.25,
        truncated=False,
        start=1000.0,
        end=1002.5,
        messages=[
            Message(role="system", content="You may search."),
            Message(role="user", content="How old is it?"),
            Message(
                role="assistant",
                content="Let me look.",
                sampled=True,
                tool_calls=[ToolCall(id="c1", name="search", arguments='{"query": "age"}')],
            ),
            Message(role="tool", name="search", content="5 years", tool_call_id="c1"),
            Message(role="assistant", content="Five.", sampled=True),
        ],
        spans=[
            Span(name="agent", id="s1", start=1000.0, end=1002.0),
            Span(
                name="search",
                id="s2",
                parent="s1",
                start=1000.5,
                end=1001.0,
                message=3,
                inputs={"query": "age"},
                outputs="5 years",
            ),
        ],
        **fields,
    )


def traces(project: str, run: str) -> list[dict[str, Any]]:
    return SQLiteStorage.get_traces(project, run, sort="step_asc")


def test_a_rollout_is_a_trace_with_messages_tools_numbers_and_its_step(own_store: Path) -> None:
    with rollscope.init(project="math", run="grpo", sinks=["trackio"]) as run:
        (id,) = run.log(conversation())
    state = wait_complete(own_store, "trackio", "math", "grpo")
    assert state.counts.sent == 1, state
    (trace,) = traces("math", "grpo")
    assert (trace["step"], trace["key"], trace["run"]) == (3, "rollouts", "grpo")
    assert [m["role"] for m in trace["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    call = trace["messages"][2]["tool_calls"][0]
    assert call["function"] == {"name": "search", "arguments": '{"query": "age"}'}
    assert trace["messages"][3]["tool_call_id"] == call["id"] == "c1"
    facts = trace["metadata"]
    assert facts["rollout"] == id
    assert (facts["reward"], facts["rewards.correct"], facts["advantage"]) == (0.5, 1.0, -0.25)
    assert (facts["index"], facts["truncated"], facts["duration_ms"]) == (2, False, 2500.0)
    assert isinstance(facts["reward"], float)
    assert isinstance(facts["step"], int)
    spans = {span["id"]: span for span in trace["spans"]}
    assert spans["s2"]["parent_id"] == "s1"
    assert (spans["s2"]["kind"], spans["s2"]["duration_ms"]) == ("tool", 500.0)


def test_it_joins_the_run_that_the_trainer_opened_in_another_thread(own_store: Path) -> None:
    opened: list[Any] = []
    done = threading.Event()

    def trainer() -> None:
        opened.append(trackio.init("theirs", "brave-run", embed=False))
        trackio.log({"loss": 0.3}, step=3)
        done.wait(120)
        opened[0].finish()

    thread = threading.Thread(target=trainer)
    thread.start()
    wait_for(lambda: opened or not thread.is_alive(), "the trainer's run")
    try:
        assert trackio.context_vars.current_run.get() is None
        assert Trackio.hints()["run_id"] == opened[0].id
        with rollscope.init(project="math", run="grpo", sinks=["trackio"]) as run:
            run.log([conversation(), conversation(step=4)])
    finally:
        done.set()
        thread.join()
    wait_complete(own_store, "trackio", "math", "grpo")
    found = traces("theirs", "brave-run")
    assert [(t["step"], t["run_id"]) for t in found] == [(3, opened[0].id), (4, opened[0].id)]
    records = SQLiteStorage.get_run_records("theirs")
    assert [record["name"] for record in records] == ["brave-run"]
    assert not SQLiteStorage.get_project_db_path("math").exists()


def test_project_run_key_and_folder_are_passed_through(own_store: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    asked = f"trackio:project=p2,run=r2,key=samples,dir={other}"
    with rollscope.init(project="math", run="grpo", sinks=[asked]) as run:
        run.log(conversation())
    wait_complete(own_store, "trackio", "math", "grpo")
    code = (
        "from trackio.sqlite_storage import SQLiteStorage as s;"
        "print([(t['run'], t['key']) for t in s.get_traces('p2', 'r2')])"
    )
    env = {**os.environ, "TRACKIO_DIR": str(other)}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "[('r2', 'samples')]" in shown.stdout


def test_a_restart_goes_on_in_the_same_run_and_sends_nothing_twice(own_store: Path) -> None:
    for step in (1, 2):
        with rollscope.init(project="math", run="grpo", sinks=["trackio"]) as run:
            run.log([conversation(step=step, key=f"{step}-{n}") for n in range(3)])
        wait_complete(own_store, "trackio", "math", "grpo")
    found = traces("math", "grpo")
    assert [t["step"] for t in found] == [1, 1, 1, 2, 2, 2]
    assert len({t["run_id"] for t in found}) == 1


def test_a_server_of_ones_own_gets_the_traces_over_http(
    own_store: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", TOKEN)
    with rollscope.init(project="math", run="grpo", sinks=[f"trackio:server_url={server}"]) as run:
        ids = run.log([conversation(step=step) for step in (1, 2)])
    state = wait_complete(own_store, "trackio", "math", "grpo")
    assert (state.counts.sent, state.to) == (2, f"{server}, project math, run grpo")
    found = ask(server, "get_traces", project="math", run="grpo", sort="step_asc")
    assert [trace["metadata"]["rollout"] for trace in found] == ids
    assert [record["name"] for record in ask(server, "get_runs_for_project", project="math")] == [
        "grpo"
    ]


def test_a_server_that_goes_away_and_comes_back_gets_every_rollout_once(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", TOKEN)
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    directory = run_dir(own_store, "math", "grpo")

    def counts() -> Any:
        state = states.read(directory, "trackio")
        return state.counts if state is not None else states.SinkCounts()

    with served(command, own(tmp_path), "/version", tmp_path / "first.log") as address:
        run = rollscope.init(project="math", run="grpo", sinks=[f"trackio:server_url={address}"])
        ids = run.log([conversation(fate="trained") for _ in range(8)])
        ids += run.log([conversation(step=4, fate="trained") for _ in range(8)])
        wait_for(lambda: counts().sent == 8, "the first step is sent")
    ids += run.log([conversation(step=5, fate="trained") for _ in range(8)])
    wait_for(lambda: counts().failed, "nobody answers")
    again = command(address.rpartition(":")[2])
    process = started(again, own(tmp_path), f"{address}/version", tmp_path / "second.log")
    try:
        run.finish()
        wait_complete(own_store, "trackio", "math", "grpo")
        found = ask(address, "get_traces", project="math", run="grpo")
    finally:
        process.terminate()
        process.wait(120)
    assert Counter(trace["metadata"]["rollout"] for trace in found) == Counter(ids)


def test_a_server_without_a_token_is_a_failure_that_says_what_to_set(
    own_store: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACKIO_WRITE_TOKEN", raising=False)
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    run = rollscope.init(project="math", run="grpo", sinks=[f"trackio:server_url={server}"])
    run.log(conversation())
    directory = run_dir(own_store, "math", "grpo")
    wait_for(lambda: (found := states.read(directory, "trackio")) and found.failures)
    state = states.read(directory, "trackio")
    assert state is not None
    assert "TRACKIO_WRITE_TOKEN" in str(states.trouble(state))
    run.finish()
    stop_forwarding(directory, "trackio")


def test_the_demo_exported_by_the_command_in_trackios_own_page(
    demo: Path, server: str, page: Any, shots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", TOKEN)
    asked = ["export", "trackio:groups_per_step=2", "project:demo", "split:train"]
    to = ["--dir", str(demo), "--option", f"server_url={server}"]
    assert cli.main([*asked, *to]) == 0
    there = ask(server, "get_traces", project="demo", run="short")
    chosen = {(t["step"], t["metadata"]["task"]) for t in there}
    assert sorted(Counter(step for step, _ in chosen).items()) == [(0, 2), (1, 2)]
    assert cli.main([*asked, *to]) == 0
    assert len(ask(server, "get_traces", project="demo", run="short")) == len(there)
    page.goto(f"{server}/traces?project=demo")
    page.get_by_role("cell", name="short").first.click()
    page.get_by_text("rewards.", exact=False).first.wait_for()
    page.screenshot(path=shots / "trackio.png")
    assert (shots / "trackio.png").stat().st_size > 20_000


def test_sending_again_leaves_one_trace() -> None:
    """What was on its way when a process was killed is sent again under the same id."""
    rollout = conversation(id="abc", time=1003.0)
    for _ in range(2):
        sink = Trackio(Target("math", "grpo"), {})
        sink.open()
        sink.send([rollout, conversation(id="def", time=1003.0)])
        sink.send([rollout])
    assert sorted(t["metadata"]["rollout"] for t in traces("math", "grpo")) == ["abc", "def"]


def test_advantage_and_fate_that_come_after_the_reward_are_in_the_trace(own_store: Path) -> None:
    """Trackio cannot change a trace, so a rollout waits for what is still expected of it."""
    with rollscope.init(project="math", run="grpo", sinks=["trackio"]) as run:
        for step in (1, 2):
            ids = run.log([replace(conversation(step), advantage=None) for _ in range(8)])
            time.sleep(3)  # several looks: what is sent now lacks the rest
            for id in ids:
                run.annotate(id, advantage=0.5, fate="trained", trained_step=step)
    state = wait_complete(own_store, "trackio", "math", "grpo")
    found = [trace["metadata"] for trace in traces("math", "grpo")]
    assert [(f.get("advantage"), f.get("fate")) for f in found] == [(0.5, "trained")] * 16
    assert (state.counts.sent, state.counts.not_updated) == (16, 0)
