"""What MLflow is told of a rollout: exactly what is known, in the form that its page shows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall
from rollscope.sinks import _chat, mlflow_trace


def rollout(**more):
    base = {
        "id": "r1",
        "run": "grpo",
        "time": 1000.0,
        "messages": [
            Message(role="user", content="2+2?"),
            Message(role="assistant", content="4", stop_reason="stop"),
        ],
    }
    return Rollout(**(base | more))


def of_type(found, kind):
    return [s for s in found if s.attributes["mlflow.spanType"] == kind]


def test_the_five_tags_are_written_as_verl_writes_them():
    found = mlflow_trace.tags(rollout(step=12, task="q-381", index=3, split="train"))
    names = ("step", "sample_index", "rollout_n", "experiment_name", "validate")
    assert [found[n] for n in names] == ["12", "q-381", "3", "grpo", "False"]
    assert mlflow_trace.tags(rollout(split="eval"))["validate"] == "True"


def test_what_is_not_known_has_no_tag_no_assessment_and_no_attribute():
    bare = Rollout(id="r1", time=1.0)
    assert mlflow_trace.tags(bare) == {"mlflow.traceName": "rollout", "rollscope.id": "r1"}
    assert mlflow_trace.assessments(bare, "tr-1") == []
    assert mlflow_trace.previews(bare) == (None, None)
    assert mlflow_trace.duration(bare) is None
    (root,) = mlflow_trace.spans(bare)
    assert root.attributes == {"mlflow.spanType": "AGENT", "rollscope.times": "not known"}


def test_a_rollout_without_times_stands_where_it_was_logged_and_says_so():
    for span in mlflow_trace.spans(rollout()):
        assert (span.start, span.end) == (1000 * 10**9, 1000 * 10**9)
        assert span.attributes["rollscope.times"] == "not known"


def test_a_call_without_times_stands_where_the_one_before_it_ended():
    found = mlflow_trace.spans(
        rollout(
            start=10.0,
            end=20.0,
            messages=[
                Message(role="user", content="x"),
                Message(role="assistant", tool_calls=[ToolCall(id="a", name="f")], start=11.0,
                        end=12.0),
                Message(role="tool", content="y", tool_call_id="a"),
                Message(role="assistant", content="z", start=15.0, end=16.0),
            ],
        )
    )  # fmt: skip
    assert [(s.start // 10**9, s.end // 10**9) for s in found] == [
        (10, 20), (11, 12), (12, 12), (15, 16),
    ]  # fmt: skip
    assert [("rollscope.times" in s.attributes) for s in found] == [False, False, True, False]


def test_rewards_are_numbers_with_what_the_judge_wrote_beside_them():
    found = mlflow_trace.assessments(
        rollout(
            reward=1.0,
            rewards={"format": 0.5, "reward": 2.0},
            reward_texts={"format": "no box"},
            advantage=-0.25,
            reference={"answer": 4},
        ),
        "tr-1",
    )
    assert [(a.name, a.value, a.rationale, a.is_expected) for a in found] == [
        ("reward", 1.0, None, False),
        ("format", 0.5, "no box", False),
        ("rewards.reward", 2.0, None, False),  # a part may have the name of the whole
        ("advantage", -0.25, None, False),
        ("reference", {"answer": 4}, None, True),
    ]
    assert len({a.id for a in found}) == 5


def test_the_reward_of_a_turn_belongs_to_its_span():
    one = rollout(
        messages=[
            Message(role="user", content="x"),
            Message(role="assistant", content="y", reward=0.5),
        ]
    )
    (found,) = mlflow_trace.assessments(one, "tr-1")
    (chat,) = of_type(mlflow_trace.spans(one), "CHAT_MODEL")
    assert (found.name, found.value, found.span) == ("turn_reward", 0.5, chat.id)


def test_a_number_that_json_has_not_goes_as_its_name():
    (found,) = mlflow_trace.assessments(rollout(reward=float("nan")), "tr-1")
    assert found.value == "NaN"


def test_ids_are_the_same_each_time_and_differ_between_rollouts_and_experiments():
    assert mlflow_trace.trace_id("1", "r1") == mlflow_trace.trace_id("1", rollout())
    assert len({mlflow_trace.trace_id(e, r) for e in "12" for r in ("r1", "r2")}) == 4
    assert [s.id for s in mlflow_trace.spans(rollout())] == [
        s.id for s in mlflow_trace.spans(rollout())
    ]


def test_the_root_has_the_conversation_and_each_chat_has_what_the_model_saw():
    root, chat = mlflow_trace.spans(rollout(environment="shop"))
    assert root.name == "shop"
    assert root.attributes["mlflow.spanInputs"] == {"messages": [
        {"role": "user", "content": "2+2?"}]}  # fmt: skip
    assert root.attributes["mlflow.spanOutputs"] == {"messages": [
        {"role": "assistant", "content": "4"}]}  # fmt: skip
    assert chat.parent == root.id
    assert chat.attributes["mlflow.spanInputs"] == root.attributes["mlflow.spanInputs"]
    assert chat.attributes["mlflow.spanOutputs"] == {"choices": [
        {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
    ]}  # fmt: skip


def test_a_long_rollout_does_not_grow_with_the_square_of_its_turns(monkeypatch):
    monkeypatch.setattr(_chat, "MOST_CONTEXT", 100)
    turns = []
    for n in range(10):
        turns += [
            Message(role="user", content=f"question {n} " * 10),
            Message(role="assistant", content=f"answer {n}"),
        ]
    chats = of_type(mlflow_trace.spans(rollout(messages=turns)), "CHAT_MODEL")
    assert [len(s.attributes["mlflow.spanInputs"]["messages"]) for s in chats] == [1] * 10
    assert chats[3].attributes["rollscope.prompt"] == "6 earlier messages: see the root span"


@pytest.mark.parametrize(
    "message",
    [
        Message(role="environment", content="you see a door"),
        Message(role="developer", content="be brief"),
        Message(role="assistant", tool_calls=[ToolCall(name="f", arguments={"a": 1})]),
        Message(role="assistant", tool_calls=[ToolCall()]),
        Message(role="user", content=[Part(type="image", image="http://x/y.png")]),
        Message(role="tool", content=[Part(type="tool_result", id="a", data={"k": 1})]),
        Message(role="assistant", content=[Part(type="audio", data={"n": 1})]),
    ],
)
def test_every_message_has_the_form_that_the_chat_view_shows(message):
    """The page's own rule (isRawModelTraceChatMessage): one message that breaks it hides all."""
    body = mlflow_trace.message(message)
    assert body["role"] in ("system", "user", "assistant", "tool")
    for call in body.get("tool_calls", ()):
        function = call["function"]
        assert all(isinstance(v, str) for v in (call["id"], function["name"]))
        assert isinstance(function["arguments"], str)
    if isinstance(body["content"], list):
        for part in body["content"]:
            shown = part["text"] if part["type"] == "text" else part["image_url"]["url"]
            assert isinstance(shown, str)
    if message.role == "environment":
        assert body["rollscope.role"] == "environment"


def test_token_counts_are_told_only_where_all_are_known():
    def usage(*tokens):
        messages = [
            Message(role="user", content="x", tokens=tokens[0]),
            Message(role="assistant", content="y", tokens=tokens[1]),
        ]
        (chat,) = of_type(mlflow_trace.spans(rollout(messages=messages)), "CHAT_MODEL")
        return chat.attributes.get("mlflow.chat.tokenUsage")

    assert usage(Tokens([1, 2]), Tokens([3])) == {
        "input_tokens": 2, "output_tokens": 1, "total_tokens": 3,
    }  # fmt: skip
    assert usage(None, Tokens([3])) is None


def test_tokens_never_leave():
    ids = list(range(5000, 6000))
    found = mlflow_trace.spans(
        rollout(
            messages=[
                Message(role="user", content="x", tokens=Tokens(ids)),
                Message(role="assistant", content="y",
                        tokens=Tokens(ids, streams={"logprob": [-0.5] * 1000})),
            ],
            spans=[Span(name="generate", id="s", inputs={"prompt_ids": ids, "n": 8},
                        outputs=[ids], meta={"log_probs": [-0.5] * 1000})],
            meta={"prompt_ids": ids},
        )
    )  # fmt: skip
    sent = json.dumps([s.attributes for s in found])
    assert "5500" not in sent and "-0.5" not in sent
    (step,) = of_type(found, "UNKNOWN")
    assert step.attributes["mlflow.spanInputs"] == {"prompt_ids": "[1,000 numbers, not sent]",
                                                   "n": 8}  # fmt: skip


def test_errors_are_those_of_the_call_that_failed():
    found = mlflow_trace.spans(
        rollout(spans=[Span(name="run", id="s", error=Error(kind="tool", type="Timeout"))])
    )
    assert [s.error and s.error.type for s in found if s.name == "run"] == ["Timeout"]
    assert found[0].error is None


def test_the_training_process_checks_options_without_loading_mlflow():
    code = (
        "import sys; from rollscope.sinks import parse; from rollscope.sinks.mlflow import MLflow;"
        "parse('mlflow:tracking_uri=http://x,experiment=e,run_id=1'); MLflow.hints();"
        "print([m for m in sys.modules if m.split('.')[0] in ('mlflow', 'sqlalchemy')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
