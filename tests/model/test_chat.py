"""Chat messages of every common shape come in whole and go out again."""

from __future__ import annotations

import pytest

from rollscope.model import Message, Part, ToolCall
from rollscope.model.chat import from_chat, to_chat

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    "chat",
    [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "add"},
        {"role": "assistant", "content": "4", "reasoning_content": "2+2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ],
        },
    ],
)
def test_openai_messages_survive_the_round_trip(chat: dict[str, object]) -> None:
    assert to_chat(from_chat(chat)) == chat


def test_arguments_stay_as_the_model_wrote_them() -> None:
    broken = {"id": "c", "function": {"name": "f", "arguments": '{"a": '}}
    assert from_chat({"role": "assistant", "tool_calls": [broken]}).tool_calls == [
        ToolCall(id="c", name="f", arguments='{"a": ')
    ]


def test_the_old_function_call_is_a_tool_call() -> None:
    got = from_chat({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}})
    assert got.tool_calls == [ToolCall(name="f", arguments="{}")]


def test_parts_of_other_makers() -> None:
    got = from_chat(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "1"}],
                },
                {"type": "hologram", "rays": 3},
            ],
        }
    )
    assert got.content == [
        Part(type="reasoning", text="hm", data={"signature": "s"}),
        Part(type="tool_call", call=ToolCall(id="t", name="f", arguments={"a": 1})),
        Part(type="tool_result", text="1", id="t"),
        Part(type="hologram", data={"rays": 3}),
    ]


def test_unknown_keys_are_kept() -> None:
    assert from_chat({"role": "user", "content": "x", "weight": 0}) == Message(
        role="user", content="x", meta={"weight": 0}
    )
