"""OpenTelemetry: what a collector receives, read with the official protobufs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector import Collector, over_grpc, over_http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

import rollscope.cli
from rollscope.checks import doctor
from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall
from rollscope.sinks import Refused, Target
from rollscope.sinks import state as states
from rollscope.sinks._chat import MOST_CONTEXT
from rollscope.sinks.otlp import Otlp
from rollscope.sinks.otlp_attributes import MOST
from rollscope.store.read.reader import Reader

TARGET = Target("shop", "run-1")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with over_http() as collector:
        yield collector


@pytest.fixture
def sink(collector: Collector) -> Iterator[Otlp]:
    sink = opened(collector)
    yield sink
    sink.close()


def opened(collector: Collector, **options: str) -> Otlp:
    sink = Otlp(TARGET, {"endpoint": collector.address, **options})
    sink.open()
    return sink


def agent() -> Rollout:
    return Rollout(
        id="r-1",
        project="shop",
        run="run-1",
        launch="l",
        step=3,
        split="train",
        task="q-7",
        group="g-7",
        index=2,
        environment="shop",
        messages=[
            Message(role="system", content="Be brief.", tokens=Tokens([1, 2])),
            Message(role="user", content="What is 2+2?", tokens=Tokens([3, 4, 5])),
            Message(
                role="assistant",
                content=[Part(type="reasoning", text="hm"), Part(type="text", text="I ask.")],
                tool_calls=[ToolCall(id="c1", name="add", arguments='{"a": 2}')],
                tokens=Tokens([6, 7, 8, 9], logprob=[-0.1, -0.2, -0.3, -0.4]),
                stop_reason="tool_calls",
                start=101.0,
                end=102.0,
            ),
            Message(role="tool", content="4", tool_call_id="c1", tokens=Tokens([10])),
            Message(role="assistant", content="4.", tokens=Tokens([11, 12]), stop_reason="stop"),
        ],
        spans=[
            Span(name="loop", id="s1", start=100.0, end=110.0, inputs={"n": 1}, outputs="done"),
            Span(name="run tool", id="s2", parent="s1", message=3, start=103.0, end=104.5),
        ],
        reward=0.75,
        rewards={"correct": 1.0, "brief": 0.5},
        reward_texts={"brief": "could be shorter"},
        sampling={"temperature": 0.7, "top_p": 0.9, "model": "Qwen/Qwen3-4B"},
        start=99.0,
        end=111.0,
        time=112.0,
        stop_reason="stop",
        truncated=False,
    )


def test_the_spans_follow_the_genai_conventions(collector: Collector, sink: Otlp) -> None:
    sink.send([agent()])
    spans = {span["name"]: span for span in collector.trace("r-1")}
    root, loop = spans["invoke_agent shop"], spans["loop"]
    tool, chats = spans["execute_tool add"], [s for s in collector.spans if "chat" in s["name"]]
    assert len(collector.spans) == 5 == 3 + len(chats)
    assert root["parent"] is None
    assert loop["parent"] == root["span"] and tool["parent"] == loop["span"]
    assert {chat["parent"] for chat in chats} == {root["span"]}
    assert (root["start"], root["end"]) == (99_000_000_000, 111_000_000_000)
    assert (tool["start"], tool["end"]) == (103_000_000_000, 104_500_000_000)

    told = root["attributes"]
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.agent.name"] == "shop"
    assert told["gen_ai.conversation.id"] == told["rollscope.id"] == "r-1"
    assert told["gen_ai.request.model"] == "Qwen/Qwen3-4B"
    assert told["gen_ai.request.temperature"] == 0.7
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gen_ai.usage.input_tokens"] == 6 and told["gen_ai.usage.output_tokens"] == 6
    assert told["rollscope.step"] == 3 and told["rollscope.index"] == 2
    assert told["rollscope.reward"] == 0.75 and told["rollscope.rewards.brief"] == 0.5
    assert told["rollscope.truncated"] is False
    assert told["rollscope.link"] == "http://127.0.0.1:7373/?id=r-1"
    assert json.loads(told["metadata"])["task"] == "q-7"
    assert root["resource"]["service.name"] == "shop"
    assert root["scope"] == "rollscope"

    first = chats[0]["attributes"]
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.usage.input_tokens"] == 5 and first["gen_ai.usage.output_tokens"] == 4
    assert json.loads(first["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "What is 2+2?"}]},
    ]
    assert json.loads(first["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "I ask."},
                {"type": "tool_call", "id": "c1", "name": "add", "arguments": '{"a": 2}'},
            ],
            "finish_reason": "tool_calls",
        }
    ]
    last = json.loads(chats[1]["attributes"]["gen_ai.input.messages"])[-1]
    answer = {"type": "tool_call_response", "id": "c1", "response": "4"}
    assert last == {"role": "tool", "parts": [answer]}

    assert tool["attributes"]["gen_ai.tool.name"] == "add"
    assert tool["attributes"]["gen_ai.tool.call.id"] == "c1"
    assert tool["attributes"]["gen_ai.tool.call.arguments"] == '{"a": 2}'
    assert tool["attributes"]["gen_ai.tool.call.result"] == "4"


def test_openinference_stands_beside_them(collector: Collector, sink: Otlp) -> None:
    sink.send([agent()])
    kinds = {s["name"]: s["attributes"]["openinference.span.kind"] for s in collector.spans}
    assert kinds == {
        "invoke_agent shop": "AGENT",
        "chat assistant": "LLM",
        "execute_tool add": "TOOL",
        "loop": "CHAIN",
    }
    chat = next(s["attributes"] for s in collector.spans if s["name"] == "chat assistant")
    assert chat["llm.model_name"] == "Qwen/Qwen3-4B"
    assert chat["llm.input_messages.1.message.content"] == "What is 2+2?"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert chat[f"{call}.function.name"] == "add"
    assert chat[f"{call}.function.arguments"] == '{"a": 2}'
    assert chat["llm.token_count.total"] == 9
    loop = next(s["attributes"] for s in collector.spans if s["name"] == "loop")
    assert loop["input.value"] == '{"n": 1}' and loop["output.value"] == "done"


def test_rewards_are_evaluation_events_of_the_root_span(collector: Collector, sink: Otlp) -> None:
    sink.send([agent()])
    root = collector.trace("r-1")[0]
    assert {(e["name"], e["trace"], e["span"]) for e in collector.events} == {
        ("gen_ai.evaluation.result", root["trace"], root["span"])
    }
    found = {
        e["attributes"].pop("gen_ai.evaluation.name"): e["attributes"] for e in collector.events
    }
    assert found == {
        "reward": {"gen_ai.evaluation.score.value": 0.75},
        "correct": {"gen_ai.evaluation.score.value": 1.0},
        "brief": {
            "gen_ai.evaluation.score.value": 0.5,
            "gen_ai.evaluation.explanation": "could be shorter",
        },
    }


def test_rewards_that_failed_to_arrive_are_sent_again(collector: Collector, sink: Otlp) -> None:
    collector.refuse = lambda path, request: 401 if path == "/v1/logs" else None
    with pytest.raises(ConnectionError):
        sink.send([agent()])
    collector.refuse = lambda path, request: None
    sink.send([agent()])
    assert len(collector.events) == 3


def test_rewards_that_are_refused_for_good_are_counted_and_their_traces_stay_sent(
    collector: Collector, own_store: Path
) -> None:
    requests: list[str] = []

    def refuse(path: str, request: object) -> int | None:
        requests.append(path)
        return 413 if path == "/v1/logs" else None

    collector.refuse = refuse
    with rollscope.init(project="shop", run="run-1") as run:
        run.log([agent(), Rollout(id="r-2", reward=1.0)])
    asked = ["export", f"otlp:endpoint={collector.address}", "--dir", str(own_store)]
    assert rollscope.cli.main(asked) == 0
    assert len(collector.trace("r-1")) == 5 and len(collector.trace("r-2")) == 1
    assert requests.count("/v1/traces") == 1, "a trace that arrived is not sent again"
    assert collector.events == []
    state = states.read(run.directory, "otlp")
    assert state is not None
    assert (state.counts.sent, state.counts.gave_up, state.counts.not_updated) == (2, 0, 2)
    with Reader(own_store) as reader:
        told = [finding.text for finding in doctor.examine(reader)]
    assert [text for text in told if "without some of their facts" in text and "413" in text]


def test_what_is_not_known_is_left_out(collector: Collector, sink: Otlp) -> None:
    sink.send([Rollout(id="r-2", messages=[Message(role="assistant", content="x")], time=5.0)])
    root, chat = collector.trace("r-2")
    assert not {k for k in root["attributes"] if "reward" in k or "usage" in k or "step" in k}
    assert collector.events == []
    assert root["start"] == root["end"] == 5_000_000_000
    assert {s["attributes"]["rollscope.times"] for s in (root, chat)} == {"not known"}


def test_later_facts_are_one_more_event_and_only_new_rewards_follow(
    collector: Collector, sink: Otlp
) -> None:
    rollout = agent()
    sink.send([rollout])
    rollout.advantage, rollout.fate, rollout.rewards["style"] = -1.5, "trained", 0.25
    collector.events.clear()
    assert sink.update(rollout)
    update, judged = collector.events
    assert update["name"] == "rollscope.update"
    assert update["attributes"]["rollscope.advantage"] == -1.5
    assert update["attributes"]["rollscope.fate"] == "trained"
    assert judged["attributes"]["gen_ai.evaluation.name"] == "style"


def test_sent_twice_it_is_the_same_trace(collector: Collector, sink: Otlp) -> None:
    sink.send([agent()])
    first = sorted((s["trace"], s["span"], s["parent"]) for s in collector.spans)
    collector.spans.clear()
    other = opened(collector)
    other.send([agent()])
    other.close()
    assert sorted((s["trace"], s["span"], s["parent"]) for s in collector.spans) == first


def test_no_token_array_and_no_picture_is_sent(collector: Collector, sink: Otlp) -> None:
    rollout = agent()
    rollout.messages[1].content = [Part(type="image", image="data:image/png;base64," + "A" * 999)]
    sink.send([rollout])
    for span in collector.spans:
        assert "AAAA" not in str(span)
        assert not [v for v in span["attributes"].values() if isinstance(v, list) and len(v) > 1]


@pytest.mark.parametrize("has_logs", [True, False])
def test_without_content_only_scalars_and_the_link_are_sent(
    collector: Collector, has_logs: bool
) -> None:
    if not has_logs:  # then the rewards are events of the span
        collector.refuse = lambda path, request: 404 if path == "/v1/logs" else None
    rollout = agent()
    error = Error(kind="tool", type="Timeout", text="the secret error")
    rollout.error, rollout.fate, rollout.fate_reason = error, "failed", "a secret reason"
    rollout.spans[1].error = error
    rollout.reward_texts["style"] = "a secret of a judge without a number"
    rollout.sampling["stop"] = ["secret stop"]
    rollout.reference = rollout.meta["note"] = "a secret note"
    rollout.messages[2].state = rollout.messages[2].meta["note"] = "a secret state"
    sink = opened(collector, content="none", viewer="https://view.example/")
    sink.send([rollout])
    sink.update(rollout)
    sink.close()

    root = collector.trace("r-1")[0]
    assert root["attributes"]["rollscope.link"] == "https://view.example/?id=r-1"
    assert root["attributes"]["rollscope.rewards.brief"] == 0.5
    assert root["attributes"]["error.type"] == "Timeout"
    assert root["status"] == (2, "")
    arrived = str([*collector.spans, *collector.events])
    for secret in ("2+2", "Be brief", "I ask", '"a": 2', "done", "shorter", "secret"):
        assert secret not in arrived
    judged = [e for e in [*collector.events, *root["events"]] if "evaluation" in e["name"]]
    assert [e["attributes"] for e in judged] == [
        {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": score}
        for name, score in {"reward": 0.75, "correct": 1.0, "brief": 0.5}.items()
    ]


def test_long_texts_are_cut_and_say_so(collector: Collector, sink: Otlp) -> None:
    text = "x" * (MOST + 7)
    sink.send([Rollout(id="r-3", messages=[Message(role="assistant", content=text)])])
    sent = collector.trace("r-3")[1]["attributes"]["llm.output_messages.0.message.content"]
    assert len(sent) < len(text) + 50 and sent.endswith("[cut here: 7 more characters]")


def test_prompts_of_a_long_rollout_are_what_is_new_because_they_grow_with_its_square(
    collector: Collector, sink: Otlp
) -> None:
    turn = "y" * 20_000
    messages = [Message(role=r, content=turn) for _ in range(30) for r in ("user", "assistant")]
    sink.send([Rollout(id="r-4", messages=messages)])
    chats = [s for s in collector.trace("r-4") if s["name"] == "chat assistant"]
    assert len(chats) == 30
    assert all("gen_ai.output.messages" in chat["attributes"] for chat in chats)
    for number, chat in enumerate(chats):
        assert len(json.loads(chat["attributes"]["gen_ai.input.messages"])) == 1
        left_out = f"{2 * number} earlier messages: see the root span" if number else None
        assert chat["attributes"].get("rollscope.prompt") == left_out
    assert sum(len(str(s)) for s in collector.spans) < 4 * MOST_CONTEXT + 6 * len(messages) * 20_000


def test_errors_are_errors(collector: Collector, sink: Otlp) -> None:
    error = Error(kind="tool", type="Timeout", text="took too long")
    sink.send([Rollout(id="r-5", error=error, fate="failed")])
    (root,) = collector.trace("r-5")
    assert root["status"] == (2, "took too long")
    assert root["attributes"]["error.type"] == "Timeout"


def test_a_receiver_without_logs_gets_the_rewards_as_events_of_the_span(
    collector: Collector,
) -> None:
    collector.refuse = lambda path, request: 404 if path == "/v1/logs" else None
    sink = opened(collector)
    sink.send([agent()])
    assert not sink.update(agent())
    sink.close()
    root = collector.trace("r-1")[0]
    assert {e["name"] for e in root["events"]} == {"gen_ai.evaluation.result"}
    assert len(root["events"]) == 3


def test_a_trace_that_the_receiver_refuses_is_named_and_the_others_are_taken(
    collector: Collector, sink: Otlp
) -> None:
    def refuse(path: str, request: object) -> ExportTraceServiceResponse | None:
        if path != "/v1/traces" or "poison" not in str(request):
            return None
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = 1
        answer.partial_success.error_message = "no poison here"
        return answer

    collector.refuse = refuse
    bad = Rollout(id="bad", messages=[Message(role="assistant", content="poison")])
    with pytest.raises(Refused, match="no poison here") as refused:
        sink.send([agent(), bad, Rollout(id="r-6", reward=1.0)])
    assert refused.value.ids == {"bad"}
    assert collector.trace("r-1") and collector.trace("r-6")


def test_a_receiver_that_fails_is_an_error_with_its_address(
    collector: Collector, sink: Otlp
) -> None:
    collector.refuse = lambda path, request: 401
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1.*401"):
        sink.send([agent()])


def test_the_standard_variables_say_where_and_how(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=rl")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
    sink = Otlp(TARGET, {})
    assert sink.open() == f"{collector.address}/v1/traces"
    sink.send([agent()])
    sink.close()
    assert collector.headers[-1]["x-team"] == "rl"
    assert collector.headers[-1]["content-encoding"] == "gzip"
    assert collector.trace("r-1")[0]["resource"]["service.name"] == "trainer"


def test_over_grpc_the_same_arrives(collector: Collector, sink: Otlp) -> None:
    sink.send([agent()])
    with over_grpc() as other:
        through = opened(other, protocol="grpc")
        through.send([agent()])
        assert through.update(agent())
        through.close()
    assert other.spans == collector.spans
    assert [e["name"] for e in other.events].count("gen_ai.evaluation.result") == 3
    assert other.events[-1]["name"] == "rollscope.update"


def test_wrong_options_are_told() -> None:
    with pytest.raises(ValueError, match="expected full or none"):
        Otlp(TARGET, {"content": "some"})
    with pytest.raises(ValueError, match="http/protobuf or grpc"):
        Otlp(TARGET, {"protocol": "carrier pigeon"})
