"""A rollout with all that chat views show, and its messages as OpenAI's chat API has them."""

from __future__ import annotations

from typing import Any

from rollscope.model import Message, Part, Rollout, Tokens, ToolCall

START = 1_700_000_000.0

ASKED = {"role": "user", "content": "2+2?"}
WROTE = {
    "role": "assistant",
    "content": "I ask.",
    "reasoning_content": "hm",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'},
        }
    ],
}
ANSWER = {"role": "tool", "content": "4", "tool_call_id": "c1"}
SAID = {"role": "assistant", "content": "It is 4."}


def agent(**more: Any) -> Rollout:
    """The policy thinks, asks a tool for 2+2 and says the sum; `more` replaces fields."""
    fields = {
        "id": "r-1",
        "project": "math",
        "run": "grpo",
        "launch": "l-1",
        "step": 3,
        "split": "train",
        "task": "q-7",
        "group": "g-7",
        "index": 2,
        "reward": 1.0,
        "rewards": {"format": 0.5},
        "advantage": -0.25,
        "time": START + 20,
        "start": START,
        "end": START + 10,
        "messages": [
            Message(role="user", content="2+2?", tokens=Tokens([1, 2, 3])),
            Message(
                role="assistant",
                content=[Part(type="reasoning", text="hm"), Part(type="text", text="I ask.")],
                tool_calls=[ToolCall(id="c1", name="add", arguments='{"a": 2, "b": 2}')],
                tokens=Tokens([4, 5]),
                reward=0.25,
                stop_reason="tool_calls",
                start=START + 1,
                end=START + 2.5,
            ),
            Message(role="tool", content="4", tool_call_id="c1", tokens=Tokens([6])),
            Message(role="assistant", content="It is 4.", tokens=Tokens([7]), stop_reason="stop"),
        ],
    }
    return Rollout(**fields | more)
