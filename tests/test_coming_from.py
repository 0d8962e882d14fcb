"""`docs/coming-from.md`: what people are told to type does what the page says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.cli import main
from rollscope.model import ToolCall

PAGE = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text()
BASH = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
LINES = [line for block in BASH for line in block.splitlines()]
SINKS = ("rollscope export trackio", "rollscope export mlflow", "rollscope export weave")
"""These need the other system: tests/peers sends with the same command."""


@pytest.fixture
def store(own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the page speaks of: a run `grpo` with dropped rollouts and tools, and others' files."""
    with rollscope.init(project="math", run="grpo") as run:
        for split in ("train", "eval"):
            for index in range(3):
                run.log(
                    Rollout(
                        step=1, split=split, task=10, group=f"{split}-10", index=index,
                        reward=index / 2, rewards={"correct": float(index == 2)},
                        fate="dropped" if index == 0 else "trained",
                        messages=[
                            Message(role="user", content="2 + 2?"),
                            Message(role="assistant", content="exact words", sampled=True,
                                    tool_calls=[ToolCall(id="c", name="search", arguments={})]),
                        ],
                    )
                )  # fmt: skip
    (tmp_path / "verl-dumps").mkdir()
    row = {"input": "2 + 2?", "output": "4", "gts": "4", "score": 1.0, "step": 1}
    (tmp_path / "verl-dumps" / "1.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "tinker-log").mkdir()
    (tmp_path / "tinker-log" / "train_rollout_summaries.jsonl").write_text(_summary() + "\n")
    monkeypatch.chdir(tmp_path)
    return own_store


def _summary() -> str:
    def said(role: str, text: str) -> dict[str, Any]:
        return {"type": "conversation", "messages": [{"role": role, "content": text}]}

    step = {
        "step_idx": 0, "ob_len": 3, "ac_len": 1, "reward": 1.0, "episode_done": True,
        "metrics": {}, "logs": {}, "stop_reason": "stop",
        "trace": {"prompt": said("user", "2 + 2?"), "policy_response": said("assistant", "4"),
                  "reward_data": {"correct": True}},
    }  # fmt: skip
    record = {
        "schema_version": 1, "split": "train", "iteration": 1, "group_idx": 0, "traj_idx": 0,
        "tags": [], "sampling_client_step": 0, "total_reward": 1.0, "final_reward": 0.0,
        "trajectory_metrics": {}, "steps": [step], "final_ob_len": 0,
    }  # fmt: skip
    return json.dumps(record)


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(SINKS)])
def test_a_line_that_is_typed_now_finds_what_it_says(
    line: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *words = shlex.split(line)
    assert name == "rollscope"
    assert main([*words, "--dir", str(store)]) == 0


def test_lines_for_other_systems_name_known_sinks() -> None:
    from rollscope.sinks import KNOWN

    named = {line.split()[2] for line in LINES if line.startswith(SINKS)}
    assert named == {"trackio", "mlflow", "weave"}
    assert named <= set(KNOWN)


def test_the_programs_of_the_page_record_what_it_says(own_store: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, {"__name__": "page"})
    store = rollscope.open(own_store)
    (row,) = store.rollouts("run:own-loop")
    assert (row.task, row.step, row.index) == ("10", 1, 2)
    assert [span.name for span in store.get(row.id).spans] == ["Agent.search"]
    (row,) = store.rollouts("run:traces")
    assert (row.reward, row.step) == (1.0, 3)


def test_the_filters_of_verls_documents_have_their_answer(store: Path) -> None:
    opened = rollscope.open(store)
    for query, count in (
        ("step:1", 6),
        ("sample_index:10", 6),
        ("rollout_n:2", 2),
        ("validate:true", 3),
        ("experiment_name:grpo", 6),
        ("reward:<0.2 fate:dropped", 2),
        ("rewards.correct:1", 2),
    ):
        assert opened.rollouts(query).count() == count, query


def test_the_tests_that_the_page_names_are_there() -> None:
    tests = {path.name for path in (Path(__file__).parent / "trainers").rglob("test_*.py")}
    named = set(re.findall(r"`(test_\w+\.py)`", PAGE))
    assert named
    assert named <= tests
