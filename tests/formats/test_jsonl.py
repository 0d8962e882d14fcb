"""JSON lines in every common shape come in; what Rollscope exports comes back whole."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

from rollscope.formats import Problem, detect, jsonl, read
from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall, normalise


def lines(path: Path, *bodies: object) -> Path:
    path.write_text("".join(json.dumps(b) + "\n" for b in bodies))
    return path


def test_an_exported_rollout_comes_back_equal(tmp_path: Path) -> None:
    rollout = Rollout(
        id="r1",
        step=3,
        task=381,
        reward=math.nan,
        rewards={"a": math.inf},
        error=Error(kind="tool", text="boom"),
        meta={"messages": 1, "score": [None, 2]},
        messages=[
            Message(role="user", content="hi"),
            Message(
                role="assistant",
                content=[
                    Part(type="reasoning", text="hm"),
                    Part(type="image", image="data:x"),
                    Part(type="odd", data={"k": [1]}),
                ],
                tool_calls=[ToolCall(id="c", name="f", arguments='{"a": ')],
                tokens=Tokens([1, 2], ends=[1, 2], logprob=[-0.5, None], other=[math.nan, 1.0]),
                sampled=True,
                state={"x": 1},
                meta={"k": "v"},
            ),
            Message(role="tool", content="3", parent=0, name="f", tool_call_id="c"),
        ],
        spans=[Span(name="f", id="s", inputs={"a": 1}, start=1.0, end=2.0)],
    )
    out = io.BytesIO()
    assert jsonl.write([rollout], out).lines == 1
    path = tmp_path / "x.jsonl"
    path.write_bytes(out.getvalue())
    assert detect(path) == "jsonl"
    (back,) = read(path)
    assert isinstance(back, Rollout)
    back.messages = list(back.messages)
    assert repr(normalise(back)) == repr(normalise(rollout))
    assert [m.tokens for m in normalise(back).messages] == [
        m.tokens for m in normalise(rollout).messages
    ]


def test_prompt_and_completion_become_messages(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl", {"prompt": "2+2", "completion": "4", "score": 1, "lang": "en"}
    )
    (got,) = read(path)
    assert isinstance(got, Rollout)
    assert [(m.role, m.content, m.sampled) for m in got.messages] == [
        ("user", "2+2", None),
        ("assistant", "4", True),
    ]
    assert (got.reward, got.meta) == (1.0, {"lang": "en"})


def test_sharegpt_turns_are_understood(tmp_path: Path) -> None:
    body = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    (got,) = read(lines(tmp_path / "x.jsonl", body))
    assert isinstance(got, Rollout)
    assert [m.role for m in got.messages] == ["user", "assistant"]


def test_a_bad_line_is_named_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    good = '{"messages": [{"role": "user", "content": "a"}]}\n'
    path.write_text(
        good + "not json\n" + '{"messages": [3]}\n' + '{"messages": [], "step": "x"}\n' + good
    )
    found = list(read(path))
    assert [type(f) for f in found] == [Rollout, Problem, Problem, Problem, Rollout]
    assert [f.line for f in found if isinstance(f, Problem)] == [2, 3, 4]
    assert "step" in str(found[3])
