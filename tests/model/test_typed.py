"""What people write is what the types say: `make lint` runs mypy over this file, too."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope import Message, Part, Rollout, ToolCall


def test_messages_parts_and_calls_may_be_dicts(tmp_path: Path) -> None:
    asked = Message(role="user", content=[{"type": "text", "text": "2 + 2?"}])
    called = Message(
        role="assistant",
        tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    )
    mixed = Message(role="user", content=[Part(type="text", text="So?"), {"type": "text"}])
    said: list[Message] = [asked, called]
    run = rollscope.init(project="math", run="grpo", dir=tmp_path)
    run.log(Rollout(key="mine", messages=[*said, mixed, {"role": "assistant", "content": "4"}]))
    run.log(Rollout(messages=said))
    run.log({"messages": [{"role": "user", "content": "2 + 2?"}], "reward": 1})
    run.log([{"task": "q"}, Rollout(task="q")])
    run.finish()
    (found,) = rollscope.open(tmp_path).rollouts("has:key")
    messages: list[Message] = rollscope.open(tmp_path).get(found.id).messages
    assert messages[0].content == [Part(type="text", text="2 + 2?")]
    calls: list[ToolCall] = messages[1].tool_calls
    assert calls == [ToolCall(id="c", name="f", arguments="{}")]
    assert messages[-1] == Message(role="assistant", content="4")
