"""Directories of verifiers v0, as its `save_outputs` and `save_metadata` write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollscope import Rollout, formats
from rollscope.model.problem import Problem

CALL = {"id": "c1", "name": "look", "arguments": '{"at": "sky"}'}


def row(example: int, reward: float, **more: Any) -> dict[str, Any]:
    return {
        "example_id": example,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?"}],
        "completion": [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "blue", "tool_call_id": "c1"},
            {"role": "assistant", "content": "5"},
        ],
        "answer": "5",
        "reward": reward,
        "timing": {"generation_ms": 10.0, "scoring_ms": 1.0, "total_ms": 11.0},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "no_tools_called",
        "metrics": {"correct": reward, "num_turns": 2.0},
        "correct": reward,
        "num_turns": 2.0,
        "token_usage": {"input_tokens": 30.0, "output_tokens": 4.0},
        **more,
    }


ERROR = {
    "error": "ToolError",
    "error_chain_repr": "ToolError('no sky')",
    "error_chain_str": "ToolError",
}


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    rows = [
        row(3, 1.0), row(4, 0.0), row(3, 0.0),
        row(4, 0.0, completion=None, is_completed=False, error=ERROR),
    ]  # fmt: skip
    run = tmp_path / "outputs" / "evals" / "sums--gpt-x" / "ab12cd"
    run.mkdir(parents=True)
    (run / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"exam')
    settings = {"env_id": "sums", "model": "gpt-x", "sampling_args": {"temperature": 0.5}}
    (run / "metadata.json").write_text(json.dumps(settings))
    return tmp_path / "outputs"


def test_a_directory_of_v0_is_read(outputs: Path) -> None:
    sources = list(formats.find(outputs))
    assert [(s.name, getattr(s, "format", None)) for s in sources] == [
        ("evals/sums--gpt-x/ab12cd", "verifiers")
    ]
    found = list(formats.read(outputs))
    rollouts = [r for r in found if isinstance(r, Rollout)]
    assert [type(r) for r in found[-1:]] == [Problem] and len(rollouts) == 4
    first = rollouts[0]
    assert (first.task, first.dataset, first.environment) == (3, "sums", "sums")
    assert (first.split, first.reward, first.reference) == ("eval", 1.0, "5")
    assert first.rewards == {"correct": 1.0}
    assert [(m.role, m.sampled) for m in first.messages] == [
        ("system", False), ("user", False), ("assistant", True), ("tool", False),
        ("assistant", True),
    ]  # fmt: skip
    (call,) = first.messages[2].tool_calls
    assert (call.id, call.name, call.arguments) == ("c1", "look", '{"at": "sky"}')
    assert first.messages[-1].content == "5"
    assert (first.stop_reason, first.truncated, first.fate) == ("no_tools_called", False, "scored")
    assert first.sampling == {"temperature": 0.5} and first.meta["model"] == "gpt-x"
    assert first.meta["metrics"] == {"num_turns": 2.0}
    groups = [r.group for r in rollouts]
    assert groups[0] == groups[2] != groups[1] == groups[3]
    assert len({r.key for r in rollouts}) == 4 and {r.index for r in rollouts} == {None}
    failed = rollouts[3]
    assert failed.fate == "failed" and failed.error is not None
    assert (failed.error.type, failed.error.text) == ("ToolError", "ToolError('no sky')")


def test_older_rows_say_what_they_have(tmp_path: Path) -> None:
    """Before 0.1.8 a completion may be a text, and scores stand beside the reward only."""
    old = {
        "example_id": 0, "prompt": "say a", "completion": "a", "task": "letters", "answer": "",
        "reward": 0.5, "generation_ms": 3.0, "exact": 0.5, "error": None,
    }  # fmt: skip
    (tmp_path / "results.jsonl").write_text(json.dumps(old))
    (found,) = [r for r in formats.read(tmp_path) if isinstance(r, Rollout)]
    assert (found.task, found.dataset, found.rewards) == (0, "letters", {"exact": 0.5})
    assert [(m.content, m.sampled) for m in found.messages] == [("say a", False), ("a", True)]
    assert found.reference is None and found.environment is None


def test_other_results_are_not_taken_for_theirs(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"example_id": 1, "messages": []}\n')
    sources = list(formats.find(tmp_path))
    assert [getattr(s, "format", None) for s in sources] != ["verifiers"]
