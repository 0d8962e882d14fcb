"""What tinker-cookbook writes itself, and how it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored import Stored, flat
from training import EVALUATES_LAST, groups, run

from rollscope.adapters import tinker
from rollscope.model import Rollout
from rollscope.model.problem import Problem

pytestmark = pytest.mark.usefixtures("strict")


def test_summaries_are_read(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, [groups(1, 2), groups(3, 4)], test=[groups(5)], eval_every=1)
    stored = Stored(own_store)
    live = {(r.split, r.step, r.reward, len(flat(r))) for r in stored}
    log_path = tmp_path / "sums" / "run-1"
    assert tinker.recognise(log_path)
    assert tinker.recognise(next(log_path.rglob("*_rollout_summaries.jsonl")))
    read = list(tinker.read(log_path))
    assert len(read) == len(stored) == (21 if EVALUATES_LAST else 18)
    lengths = {
        (r.split, r.step, r.reward, r.messages[0].meta["ob_len"] + r.messages[0].meta["ac_len"])
        for r in read
    }
    assert lengths == live
    assert {r.dataset for r in read} == {"sums", "test"}
    numbers: dict[int | None, dict[str, float]] = {}
    for step, values in tinker.read_metrics(log_path):
        numbers.setdefault(step, {}).update(values)
    assert numbers == stored.metrics and {0, 1} <= set(numbers)
    assert all(r.group and r.index is not None for r in read)


def test_summaries_with_traces_are_read(tmp_path: Path) -> None:
    """`RolloutTrace`, as proposed: prompts repeat the history, some numbers are texts."""
    said = {"role": "assistant", "content": "look"}
    first = [{"role": "user", "content": "hi"}]
    second = [*first, said, {"role": "tool", "content": "a cat"}]
    steps = [
        {
            "step_idx": i,
            "ob_len": 10,
            "ac_len": 2,
            "reward": 0.5,
            "episode_done": i == 1,
            "metrics": {},
            "logs": {"n": i},
            "stop_reason": "stop",
            "trace": {
                "prompt": {"type": "conversation", "messages": prompt},
                "policy_response": {"type": "conversation", "messages": [said]},
                "reward_data": {
                    "reward": "0.500",
                    "correct": True,
                    "format_penalty": "-0.100",
                    "reference_answer": "5",
                },
                "env_state": {"found": i},
                "extra": {
                    "rubric_grades": [
                        {"score": 0.25, "criterion": "Short?", "grader_response": "meh"}
                    ]
                },
            },
        }
        for i, prompt in enumerate((first, second))
    ]
    record = {
        "schema_version": 1, "split": "eval/animals", "iteration": 7, "group_idx": 1,
        "traj_idx": 2, "tags": [], "sampling_client_step": 6, "total_reward": 1.0,
        "final_reward": 0.0, "trajectory_metrics": {}, "steps": steps, "final_ob_len": 0,
    }  # fmt: skip
    path = tmp_path / "train_rollout_summaries.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(record)[:40])  # the last line is torn
    rollout, torn = tinker.read(path)
    assert isinstance(torn, Problem) and torn.line == 2
    assert [(m.role, m.content, m.sampled) for m in rollout.messages] == [
        ("user", "hi", False),
        ("assistant", "look", True),
        ("tool", "a cat", False),
        ("assistant", "look", True),
    ]
    assert (rollout.split, rollout.dataset, rollout.step) == ("eval", "animals", 7)
    assert (rollout.policy_version, rollout.index, rollout.reward) == (6, 2, 1.0)
    assert rollout.rewards == {"correct": 1.0, "format_penalty": -0.1, "rubric 1": 0.25}
    assert rollout.reward_texts == {"rubric 1": "meh"}
    assert rollout.reference == "5", "the answer is no part of the reward, though it is a number"
    assert [m.state for m in rollout.messages if m.sampled] == [{"found": 0}, {"found": 1}]
    assert rollout.stop_reason == "stop"


def test_reports_are_read_but_never_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    run(tmp_path, monkeypatch, [groups(1, 2)])
    log_path = tmp_path / "sums" / "run-1"
    report = next(log_path.rglob("*_logtree.json"))
    assert tinker.recognise(report)
    read = list(tinker.read(report))
    assert len(read) == 6
    for rollout in read:
        assert "unmatched" in rollout.meta and rollout.index is None
        roles = [m.role for m in rollout.messages]
        assert roles == ["system", "user", "assistant"]
        assert rollout.messages[2].sampled and not rollout.messages[1].sampled
        assert rollout.reward is not None and rollout.step == 0
        correct = str(rollout.messages[2].content).strip() == rollout.reference
        assert rollout.rewards["correct"] == float(correct)
    # A directory gives each rollout once: from the summaries.
    assert all("unmatched" not in r.meta for r in tinker.read(log_path))


def test_other_files_are_not_taken_for_tinkers(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "x.json").write_text('{"root": 1}')
    assert not tinker.recognise(tmp_path / "x.jsonl")
    assert not tinker.recognise(tmp_path / "x.json")
    assert not tinker.recognise(tmp_path)


def test_the_store_of_its_own_capture_is_read(tmp_path: Path) -> None:
    db = pytest.importorskip("tinker_cookbook.capture.store.db")
    store = db.CaptureDB(tmp_path / "capture.sqlite")
    place = {"run_id": "run-7", "split": "train", "iteration": 3, "group_idx": 1}
    turns = [([1, 2, 3], [4, 5]), ([1, 2, 3, 4, 5, 6], [7])]
    rows = [
        {**place, "traj_idx": n, "policy_version": "3", "prompt_tokens": shown,
         "sampled_tokens": [*wrote[:-1], wrote[-1] + 10 * n],
         "logprobs": [-0.5 * (k + 1) for k in range(len(wrote))], "metadata": {"seed": n}}
        for shown, wrote in turns for n in range(1)
    ]  # fmt: skip
    rows.append({"run_id": "run-7", "prompt_tokens": [1], "sampled_tokens": [2], "logprobs": None})
    store.ingest_wire(rows)
    store.close()
    assert tinker.recognise(tmp_path) and tinker.recognise(tmp_path / "capture.sqlite")
    alone, whole = sorted(tinker.read(tmp_path), key=lambda r: r.step or 0)
    assert isinstance(whole, Rollout) and isinstance(alone, Rollout)
    assert (whole.step, whole.split, whole.index, whole.policy_version) == (3, "train", 0, 3)
    assert whole.meta == {"run_id": "run-7", "seed": 0}
    said = [(list(m.tokens.ids), m.sampled) for m in whole.messages if m.tokens]
    assert said == [([1, 2, 3], False), ([4, 5], True), ([6], False), ([7], True)]
    assert list(whole.messages[1].tokens.streams["logprob"]) == [-0.5, -1.0]
    assert (alone.group, alone.index, len(alone.messages)) == (None, None, 2)
