"""Weave: its own client's bindings against a stand-in for the hosted trace server."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sums
from sums import ANSWER, ASKED, SAID, WROTE
from weave_stand_in import StandIn, stand_in

from rollscope.model import Error, Message, Rollout, Span
from rollscope.sinks import Refused, Target
from rollscope.sinks.weave import Weave
from rollscope.sinks.weave_calls import call_id

TARGET = Target("math", "grpo")
KEY = "k" * 40


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_ENTITY", "team")
    monkeypatch.setenv("WEAVE_RETRY_MAX_INTERVAL", "0.1")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as held:
        yield held


@pytest.fixture
def sink(server: StandIn) -> Iterator[Weave]:
    sink = Weave(TARGET, {"server": server.url})
    sink.open()
    yield sink
    sink.close()


def agent(**more: Any) -> Rollout:
    return sums.agent(**{"sampling": {"model": "qwen", "temperature": 0.7}} | more)


def by_name(server: StandIn) -> dict[str, dict]:
    return {call["display_name"]: call for call in server.calls.values()}


def test_calls_arrive_field_by_field_at_a_stand_in_for_the_server(
    sink: Weave, server: StandIn
) -> None:
    sink.send([agent()])
    root, first, tool, last = server.calls.values()

    five = {"step": 3, "sample_index": "q-7", "rollout_n": 2, "experiment_name": "grpo",
            "validate": False}  # fmt: skip
    for call in (root, first, tool, last):
        assert {name: call["attributes"][name] for name in five} == five
        assert call["project_id"] == "team/math"
        assert call["trace_id"] == root["id"]
        assert uuid.UUID(call["id"])
        assert call["exception"] is None
    assert [c["parent_id"] for c in (root, first, tool, last)] == [None] + [root["id"]] * 3
    assert [c["attributes"]["weave"] for c in (root, first, tool, last)] == [
        {"kind": "agent"}, {"kind": "llm"}, {"kind": "tool"}, {"kind": "llm"},
    ]  # fmt: skip
    assert [c["display_name"] for c in (root, first, tool, last)] == [
        "rollout", "assistant", "add", "assistant",
    ]  # fmt: skip
    assert [c["op_name"].rpartition(":")[0] for c in (root, first, tool)] == [
        f"weave:///team/math/op/{name}" for name in ("rollout", "chat", "tool")
    ]

    assert root["started_at"] == "2023-11-14T22:13:20+00:00"
    assert root["ended_at"] == "2023-11-14T22:13:30+00:00"
    assert first["started_at"] == "2023-11-14T22:13:21+00:00"
    assert first["ended_at"] == "2023-11-14T22:13:22.500000+00:00"
    assert "times" not in first["attributes"]["rollscope"]
    assert tool["started_at"] == tool["ended_at"] == first["ended_at"]
    assert tool["attributes"]["rollscope"]["times"] == "not known"

    assert first["inputs"] == {"model": "qwen", "temperature": 0.7, "messages": [ASKED]}
    assert first["output"] == {
        "choices": [{"index": 0, "message": WROTE, "finish_reason": "tool_calls"}],
        "reward": 0.25,
    }
    assert tool["inputs"] == {"a": 2, "b": 2}
    assert tool["output"] == "4"
    assert last["inputs"]["messages"] == [ASKED, WROTE, ANSWER]
    assert root["inputs"] == {"messages": [ASKED, WROTE, ANSWER]}
    assert root["output"] == {
        "choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}],
        "reward": 1.0,
        "rewards": {"format": 0.5},
        "advantage": -0.25,
    }

    assert first["summary"] == {
        "status_counts": {"success": 1, "error": 0},
        "usage": {"qwen": {"requests": 1, "prompt_tokens": 3, "completion_tokens": 2,
                           "total_tokens": 5}},
    }  # fmt: skip
    assert root["summary"] == {
        "status_counts": {"success": 4, "error": 0},
        "usage": {"qwen": {"requests": 2, "prompt_tokens": 9, "completion_tokens": 3,
                           "total_tokens": 12}},
    }  # fmt: skip
    assert root["attributes"]["rollscope"] == {
        "id": "r-1", "project": "math", "launch": "l-1", "split": "train", "group": "g-7",
        "sampling": {"model": "qwen", "temperature": 0.7},
    }  # fmt: skip
    encoded = base64.b64encode(f"api:{KEY}".encode()).decode()
    assert server.authorization == {f"Basic {encoded}"}


def test_what_is_not_known_is_not_sent(sink: Weave, server: StandIn) -> None:
    sink.send([Rollout(id="bare", time=5.0)])
    (root,) = server.calls.values()
    assert root["attributes"] == {"rollscope": {"id": "bare", "times": "not known"},
                                  "weave": {"kind": "agent"}}  # fmt: skip
    assert (root["inputs"], root["output"]) == ({}, None)
    assert root["summary"] == {"status_counts": {"success": 1, "error": 0}}


def test_sending_again_changes_nothing_and_the_server_can_be_asked(
    sink: Weave, server: StandIn
) -> None:
    sink.send([agent()])
    before = json.dumps(server.calls)
    assert sink.holds(["r-1", "r-2"]) == {"r-1"}
    sink.send([agent()])
    assert json.dumps(server.calls) == before


def test_later_facts_are_feedback_on_the_call_each_state_once(sink: Weave, server: StandIn) -> None:
    sink.send([agent()])
    later = agent(reward=2.0, fate="trained", trained_step=4, meta={"flags": ["loop"]})
    assert sink.update(later) and sink.update(later)
    (made,) = server.feedback.values()
    assert made["weave_ref"] == f"weave:///team/math/call/{call_id('r-1')}"
    assert made["feedback_type"] == "rollscope.facts"
    assert made["payload"] == {
        "reward": 2.0,
        "rewards": {"format": 0.5},
        "advantage": -0.25,
        "fate": "trained",
        "trained_step": 4,
        "meta": {"flags": ["loop"]},
    }


def test_spans_are_calls_below_those_that_called_them(sink: Weave, server: StandIn) -> None:
    spans = [
        Span(name="Loop.run", id="1", inputs={"prompt_ids": list(range(1000))}, start=900.0),
        Span(name="grade", id="2", parent="1", outputs=0.5, meta={"retries": 2},
             error=Error(kind="grader", type="Timeout", text="too slow")),
    ]  # fmt: skip
    sink.send([agent(spans=spans)])
    calls = by_name(server)
    loop, grade = calls["Loop.run"], calls["grade"]
    assert grade["parent_id"] == loop["id"]
    assert loop["op_name"].startswith("weave:///team/math/op/Loop.run:")
    assert loop["inputs"] == {"prompt_ids": "[1,000 numbers, not sent]"}
    assert grade["output"] == 0.5
    assert grade["attributes"]["rollscope"]["meta"] == {"retries": 2}
    assert json.loads(grade["exception"]) == {"type": "Timeout", "message": "too slow"}
    assert loop["summary"]["status_counts"] == {"success": 1, "error": 1}


def test_a_call_larger_than_weave_keeps_is_cut_and_says_so(sink: Weave, server: StandIn) -> None:
    long = [Message(role="user", content="x" * 400_000)] * 20
    sink.send([agent(messages=[*long, Message(role="assistant", content="y")])])
    for call in server.calls.values():
        assert len(json.dumps(call)) < 3.5 * 2**20
    (chat,) = (c for c in server.calls.values() if c["attributes"]["weave"]["kind"] == "llm")
    said, _, note = chat["inputs"]["messages"][0]["content"].partition("\n")
    assert note == f"[cut here: {400_000 - len(said):,} more characters]"


def test_only_the_calling_thread_talks_to_weave(server: StandIn) -> None:
    before = threading.enumerate()
    sink = Weave(TARGET, {"server": server.url})
    sink.open()
    sink.send([agent()])
    assert sink.update(agent())
    assert sink.holds(["r-1"]) == {"r-1"}
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in new if "process_request_thread" not in name] == []  # the stand-in's
    sink.close()


def test_a_failing_server_is_an_error_and_never_a_silent_loss(sink: Weave, server: StandIn) -> None:
    server.fail = lambda path, body: 503 if path.endswith("complete") else None
    with pytest.raises(Exception, match="503"):
        sink.send([agent()])
    assert server.calls == {}
    server.fail = lambda path, body: None
    sink.send([agent()])
    assert len(server.calls) == 4


def test_one_bad_rollout_does_not_hold_up_the_others(sink: Weave, server: StandIn) -> None:
    server.fail = lambda path, body: 422 if b'"bad' in body else None
    with pytest.raises(Refused) as refused:
        sink.send([agent(id="r-1"), agent(id="bad"), agent(id="r-2")])
    assert refused.value.ids == {"bad"}
    assert {c["attributes"]["rollscope"]["id"] for c in server.calls.values()} == {"r-1", "r-2"}


def test_an_operation_is_made_known_once(sink: Weave, server: StandIn) -> None:
    sink.send([agent(id="a"), agent(id="b")])
    sink.send([agent(id="c")])
    assert [made["object_id"] for made in server.objects] == ["rollout", "chat", "tool"]


def test_calls_belong_to_the_run_that_the_trainer_has_open_in_wandb(server: StandIn) -> None:
    hints = {"entity": "lab", "project": "rl", "wandb_run": "lab/rl/abc123"}
    sink = Weave(Target("math", "grpo", hints), {"server": server.url})
    assert sink.open() == f"{server.url} lab/rl"
    sink.send([agent()])
    sink.close()
    for call in server.calls.values():
        assert (call["wb_run_id"], call["wb_run_step"]) == ("lab/rl/abc123", 3)


def test_options_win_over_what_the_trainer_uses(server: StandIn) -> None:
    hints = {"entity": "lab", "project": "rl", "wandb_run": "lab/rl/abc123"}
    options = {"server": server.url, "entity": "me", "project": "mine"}
    sink = Weave(Target("math", "grpo", hints), options)
    sink.open()
    sink.send([agent()])
    sink.close()
    for call in server.calls.values():
        assert call["project_id"] == "me/mine"
        assert "wb_run_id" not in call and "wb_run_step" not in call


def test_the_project_of_the_trainers_client_is_found(server: StandIn) -> None:
    code = f"""
from rollscope.sinks.weave import Weave
import sys
assert "weave" not in sys.modules
assert Weave.hints() == {{}}
from weave.trace.context.weave_client_context import set_weave_client_global
from weave.trace.weave_client import WeaveClient
from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer
server = RemoteHTTPTraceServer({server.url!r})
set_weave_client_global(WeaveClient("lab", "rl", server, ensure_project_exists=False))
assert Weave.hints() == {{"entity": "lab", "project": "rl"}}, Weave.hints()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_who_is_not_logged_in_is_told_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(PermissionError, match="wandb login"):
        Weave(TARGET, {}).open()
