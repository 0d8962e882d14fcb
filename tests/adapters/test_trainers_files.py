"""Files of TRL, tinker-cookbook, verifiers and prime-rl are read without any of them installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rollscope.adapters import tinker, trl, verifiers
from rollscope.model import Rollout
from rollscope.model.problem import Problem


def test_adapters_load_without_their_trainers() -> None:
    code = """
import sys
import rollscope.adapters.trl, rollscope.adapters.tinker, rollscope.adapters.verifiers
heavy = {"trl", "transformers", "torch", "tinker", "tinker_cookbook", "verifiers", "duckdb"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def completions(path: Path, prompts: list[str], types: str = "") -> Path:
    rows = ", ".join(
        f"(4, '{p}', 'c{i}', {i}.5::DOUBLE, {i}, 0.5::DOUBLE)" for i, p in enumerate(prompts)
    )
    names = "step, prompt, completion, correct, length, advantage"
    file = path / "completions_00004.parquet"
    duckdb.execute(f"COPY (SELECT * FROM (VALUES {rows}) t({names})) TO '{file}' (FORMAT parquet)")
    return file


def rollouts(found: Any) -> list[Rollout]:
    kept = list(found)
    assert all(isinstance(r, Rollout) for r in kept), kept
    return kept


def test_trl_completions(tmp_path: Path) -> None:
    completions(tmp_path, ["a", "a", "b", "b"])
    assert trl.recognise(tmp_path)
    read = rollouts(trl.read(tmp_path))
    assert [(r.step, r.index, r.reward, r.meta["length"]) for r in read] == [
        (4, 0, 0.5, 0),
        (4, 1, 1.5, 1),
        (4, 0, 2.5, 2),
        (4, 1, 3.5, 3),
    ]
    assert len({r.group for r in read}) == 2 and len({r.task for r in read}) == 2
    assert [m.content for m in read[0].messages] == ["a", "c0"]


def test_trl_completions_of_uneven_groups_are_unmatched(tmp_path: Path) -> None:
    completions(tmp_path, ["a", "a", "a", "b"])
    read = rollouts(trl.read(tmp_path))
    assert {(r.group, r.index) for r in read} == {(None, None)}
    assert all("unmatched" in r.meta for r in read)


def test_a_torn_parquet_file_is_a_problem(tmp_path: Path) -> None:
    file = completions(tmp_path, ["a", "a"])
    file.write_bytes(file.read_bytes()[:-20])
    (problem,) = trl.read(tmp_path)
    assert isinstance(problem, Problem) and problem.file == file
    assert not trl.recognise(file)


def summary(**changes: Any) -> dict[str, Any]:
    step = {"step_idx": 0, "ob_len": 3, "ac_len": 2, "reward": 0.5, "episode_done": True}
    step |= {"metrics": {"stop/max_tokens": 1.0}, "logs": {"n": 1}}
    record = {"schema_version": 1, "split": "train", "iteration": 2, "group_idx": 1}
    record |= {"traj_idx": 0, "tags": ["sums"], "total_reward": 0.5, "final_reward": 0.0}
    return {**record, "steps": [step], **changes}


def test_tinker_summaries(tmp_path: Path) -> None:
    folder = tmp_path / "iteration_000002"
    folder.mkdir()
    file = folder / "train_rollout_summaries.jsonl"
    file.write_text("".join(json.dumps(summary(traj_idx=n)) + "\n" for n in range(3)) + "{torn")
    assert tinker.recognise(tmp_path) and tinker.recognise(file)
    *read, torn = tinker.read(tmp_path)
    assert isinstance(torn, Problem) and torn.line == 4
    assert [r.index for r in read] == [0, 1, 2]
    assert {(r.step, r.group, r.dataset, r.stop_reason) for r in read} == {
        (2, "train/2/1", "sums", "max_tokens")
    }
    assert read[0].messages[0].state == {"n": 1}


def test_a_summary_of_another_shape_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "x_rollout_summaries.jsonl"
    file.write_text(json.dumps(summary(steps=3)) + "\n")
    (problem,) = tinker.read(file)
    assert isinstance(problem, Problem)


def trace(id: str, **changes: Any) -> dict[str, Any]:
    nodes = [
        {"parent": None, "message": {"role": "user", "content": "hi"}, "token_ids": [1, 2]},
        {
            "parent": 0,
            "message": {"role": "assistant", "content": "yo"},
            "sampled": True,
            "token_ids": [3, 4, 5],
            "mask": [False, True, True],
            "logprobs": [-0.5, -0.25],
        },
    ]
    record = {"id": id, "task": {"key": "t"}, "nodes": nodes, "ok": True}
    record |= {"rewards": {"exact": {"score": 1.0, "weight": 1.0}}}
    return {**record, **changes}


def episode(id: str, **changes: Any) -> dict[str, Any]:
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": 1}}
    return {"id": f"e-{id}", "task": {"key": "t"}, "run": run, "traces": [trace(id)], **changes}


def dump(file: Path, *records: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(r) + "\n" for r in records))


def test_verifiers_traces(tmp_path: Path) -> None:
    dump(tmp_path / "traces.jsonl", episode("a"), episode("b"), {"traces": [{"nodes": 3}]})
    *read, odd = verifiers.read(tmp_path)
    assert [(r.key, r.task, r.reward) for r in read] == [("a", "t", 1.0), ("b", "t", 1.0)]
    tokens = read[0].messages[1].tokens
    assert tokens is not None and tokens.logprob == [None, -0.5, -0.25]
    assert isinstance(odd, Problem)


@pytest.mark.parametrize("layout", ["steps", "stream"])
def test_prime_rl_run_directories(tmp_path: Path, layout: str) -> None:
    if layout == "steps":
        dump(tmp_path / "rollouts/step_1/train/all/traces.jsonl", episode("a"), episode("b"))
        dump(tmp_path / "rollouts/step_2/train/effective/traces.jsonl", episode("b"))
    else:
        traces = tmp_path / "monitors/file/traces"
        dump(traces / "stream/00000.jsonl", episode("a"), episode("b"))
        info = {"effective": True, "ship": {"step": 2}}
        dump(traces / "annotations/orch/00000.jsonl", {"trace_id": "b", "info": info})
    assert verifiers.recognise(tmp_path)
    read = {r.key: (r.fate, r.step, r.trained_step) for r in rollouts(verifiers.read(tmp_path))}
    a = "dropped" if layout == "steps" else "scored"
    assert read == {"a": (a, 1, None), "b": ("trained", 1, 2)}
