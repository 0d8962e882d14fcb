# ruff: noqa: E501
"""Every common way of writing a chat as JSON lines is understood; what is not says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollscope.formats import Problem, read
from rollscope.model import Part, Rollout, ToolCall


def one(tmp_path: Path, line: Any) -> Rollout:
    path = tmp_path / "x.jsonl"
    path.write_text((line if isinstance(line, str) else json.dumps(line)) + "\n")
    (found,) = read(path, "jsonl")
    assert isinstance(found, Rollout), str(found)
    return found


def message(tmp_path: Path, **body: Any) -> Any:
    return one(tmp_path, {"messages": [{"role": "assistant", **body}]}).messages[0]


CALL = ToolCall(id="c1", name="add", arguments='{"a": 1}')


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}], CALL),
        ([{"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}], ToolCall(id="c1", name="add", arguments={"a": 1})),
        ([{"function": {"name": "add", "arguments": None}}], ToolCall(name="add")),
        ([{"id": 7, "name": "add", "arguments": {"a": 1}}], ToolCall(id="7", name="add", arguments={"a": 1})),
        ([{"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}], ToolCall(id="c1", name="add", arguments={"a": 1})),
        ([{"call_id": "c1", "name": "add", "parameters": {"a": 1}}], ToolCall(id="c1", name="add", arguments={"a": 1})),
        ([{"id": "c1", "type": "custom", "custom": {"name": "add", "input": "free text"}}], ToolCall(id="c1", name="add", arguments="free text")),
        ('[{"id": "c1", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}]', CALL),
        ([{"id": "c1", "function": {"name": "add", "arguments": '{"a": '}}], ToolCall(id="c1", name="add", arguments='{"a": ')),
    ],
)  # fmt: skip
def test_tool_calls(calls: Any, expected: ToolCall, tmp_path: Path) -> None:
    assert message(tmp_path, content=None, tool_calls=calls).tool_calls == [expected]


def test_no_tool_calls_is_none_however_it_is_written(tmp_path: Path) -> None:
    for nothing in (None, [], ""):
        assert message(tmp_path, content="x", tool_calls=nothing).tool_calls == []


def test_the_old_function_call_and_its_answer(tmp_path: Path) -> None:
    got = one(
        tmp_path,
        {
            "messages": [
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "4"},
            ]
        },
    )  # fmt: skip
    assert got.messages[0].tool_calls == [ToolCall(name="f", arguments="{}")]
    assert (got.messages[1].role, got.messages[1].name) == ("function", "f")


def test_a_tool_answers_with_or_without_an_id(tmp_path: Path) -> None:
    bodies = [{"tool_call_id": "c1"}, {"tool_call_id": 5}, {}, {"tool_call_id": None, "name": "f"}]
    got = one(tmp_path, {"messages": [{"role": "tool", "content": "4", **b} for b in bodies]})
    assert [m.tool_call_id for m in got.messages] == ["c1", "5", None, None]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_beside_the_content(key: str, tmp_path: Path) -> None:
    got = message(tmp_path, content="4", **{key: "hm"})
    assert got.content == [Part(type="reasoning", text="hm"), Part(type="text", text="4")]
    assert message(tmp_path, content=None, **{key: "hm"}).content == [
        Part(type="reasoning", text="hm")
    ]
    assert message(tmp_path, content="4", **{key: ""}).content == "4"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "a"}, Part(type="text", text="a")),
        ({"type": "input_text", "text": "a"}, Part(type="text", text="a")),
        ("a", Part(type="text", text="a")),
        ({"text": "a"}, Part(type="text", text="a")),
        ({"type": "thinking", "thinking": "hm"}, Part(type="reasoning", text="hm")),
        ({"type": "reasoning", "text": "hm"}, Part(type="reasoning", text="hm")),
        ({"type": "image_url", "image_url": {"url": "data:x"}}, Part(type="image", image="data:x")),
        ({"type": "image_url", "image_url": "data:x"}, Part(type="image", image="data:x")),
        ({"type": "image", "image": "data:x"}, Part(type="image", image="data:x")),
        (
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
            Part(type="tool_call", call=ToolCall(id="c1", name="f", arguments={"a": 1})),
        ),
        (
            {"type": "tool_result", "tool_use_id": "c1", "content": "4"},
            Part(type="tool_result", id="c1", text="4"),
        ),
        ({"type": "input_audio", "input_audio": {"data": "x"}}, Part(type="input_audio", data={"input_audio": {"data": "x"}})),
    ],
)  # fmt: skip
def test_parts(part: Any, expected: Part, tmp_path: Path) -> None:
    assert message(tmp_path, content=[part]).content == [expected]


def test_what_is_not_known_is_kept(tmp_path: Path) -> None:
    got = message(tmp_path, content="x", weight=0, refusal=None, reasoning_details=[{"a": 1}])
    assert got.meta == {"weight": 0, "reasoning_details": [{"a": 1}]}
    whole = one(tmp_path, {"messages": [], "tools": [{"name": "f"}], "lang": "en"})
    assert whole.meta == {"tools": [{"name": "f"}], "lang": "en"}


def test_messages_as_text_in_text(tmp_path: Path) -> None:
    inner = json.dumps([{"role": "user", "content": "a"}])
    assert one(tmp_path, {"messages": inner}).messages[0].content == "a"


def test_sharegpt_with_tools(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "a"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "b", "weight": 1},
    ]
    got = one(tmp_path, {"conversations": turns})
    assert [m.role for m in got.messages] == ["user", "assistant", "tool", "assistant"]
    assert got.messages[1].tool_calls == [ToolCall(name="f", arguments={"a": 1})]
    assert got.messages[3].meta == {"weight": 1}


def test_a_prompt_may_be_a_chat_and_an_answer_a_message(tmp_path: Path) -> None:
    for answer in ("4", [{"role": "assistant", "content": "4"}], {"content": "4"}):
        line = {"prompt": [{"role": "user", "content": "q"}], "completion": answer}
        got = one(tmp_path, line)
        assert [(m.role, m.content, m.sampled) for m in got.messages] == [
            ("user", "q", None),
            ("assistant", "4", True),
        ]


def test_numbers_as_python_writes_them(tmp_path: Path) -> None:
    assert one(tmp_path, '{"messages": [], "reward": Infinity}').reward == float("inf")
    assert one(tmp_path, '\ufeff{"messages": [], "reward": true}').reward == 1.0
    assert one(tmp_path, '{"messages": [], "step": 3.0, "reward": "0.5"}').step == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"messages": [], "step": "x"}', ["step", "'x'", "int"]),
        ('{"messages": [], "reward": {"a": 1}}', ["reward", "{'a': 1}", "rewards"]),
        ('{"messages": [3]}', ["message", "3"]),
        ('{"messages": {"role": "user"}}', ["messages", "list"]),
        ('{"messages": [{"role": "tool", "content": 5}]}', ["content", "5"]),
        ("7", ["expected an object"]),
        ('{"messages": [}', ["JSON"]),
    ],
)
def test_a_bad_line_says_field_value_and_what_is_expected(
    line: str, said: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"\n{line}\n")
    (found,) = read(path, "jsonl")
    assert isinstance(found, Problem)
    assert found.line == 2
    assert [word for word in said if word not in found.text] == [], found.text
