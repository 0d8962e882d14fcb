"""Groups of TRL's rows: unmatched and never guessed, and whole across processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from stored import Stored, flat
from world import VERSION

from rollscope.adapters import trl as adapter
from rollscope.model import Rollout

pytestmark = pytest.mark.usefixtures("strict")


def batch(n: int = 4, **changes: Any) -> tuple[list[Rollout], list[str]]:
    problems: list[str] = []
    given: dict[str, Any] = {
        "inputs": [{"prompt": "p", "index": 1} for _ in range(n)],
        "prompts": ["p"] * n,
        "completions": [f"c{i}" for i in range(n)],
        "completion_ids": [[i] for i in range(n)],
        "output": {"advantages": torch.arange(float(n))},
        "rewards": torch.arange(float(n)).reshape(n, 1),
        "reward_names": ["r"],
        "num_generations": n,
        "step": 1,
    }
    return adapter.convert(**{**given, **changes}, problems=problems), problems


def test_rows_that_are_no_whole_groups_are_unmatched() -> None:
    rollouts, problems = batch(4, num_generations=3)
    assert {(r.group, r.index) for r in rollouts} == {(None, None)}
    assert all("unmatched" in r.meta for r in rollouts)
    assert [r.reward for r in rollouts] == [0.0, 1.0, 2.0, 3.0]
    assert "4 rows are not groups of 3" in problems[0]


def test_a_group_with_two_prompts_is_unmatched() -> None:
    inputs = [{"prompt": p} for p in ("p", "p", "x", "p")]
    rollouts, problems = batch(4, inputs=inputs)
    assert {(r.group, r.index) for r in rollouts} == {(None, None)}
    assert "different prompts" in problems[0]


def test_lists_of_another_length_are_missing_not_shifted() -> None:
    rollouts, problems = batch(
        4,
        rewards=torch.arange(3.0).reshape(3, 1),
        output={"advantages": torch.arange(5.0)},
        extra={"gold": ["x"] * 3},
    )
    assert {(r.reward, r.advantage) for r in rollouts} == {(None, None)}
    assert {r.fate for r in rollouts} == {"generated"}
    assert all("gold" not in r.meta for r in rollouts)
    assert len(problems) == 3


def test_groups_stay_whole_across_processes() -> None:
    """Rank 1 of 2: its rows are the second half of all, and of the rewards."""
    rewards = torch.arange(8.0).reshape(8, 1)
    shared = {"rewards": rewards, "num_generations": 8, "total": 8}
    first, _ = batch(4, first=0, **shared)
    second, _ = batch(4, first=4, **shared)
    assert [r.index for r in first + second] == list(range(8))
    assert {r.group for r in first + second} == {first[0].group}
    assert [r.reward for r in first + second] == [float(i) for i in range(8)]
    assert len({r.key for r in first + second}) == 8


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trainings on two processes, started by torchrun. See `two_ranks.py`."""
    if VERSION < (0, 26):
        pytest.skip("num_generations_eval came with TRL 0.26")
    directory = tmp_path_factory.mktemp("two ranks")
    script = Path(__file__).with_name("two_ranks.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(script), str(directory)]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return directory


def by_group(stored: Stored) -> dict[str, list[Rollout]]:
    groups: dict[str, list[Rollout]] = {}
    for rollout in stored:
        groups.setdefault(str(rollout.group), []).append(rollout)
    return groups


def notes_of_both(directory: Path) -> list[str]:
    """What the models of both ranks were shown and wrote."""
    notes = [json.loads((directory / f"notes-{rank}.json").read_text()) for rank in (0, 1)]
    return sorted(str(prompt + wrote) for rank in notes for prompt, wrote in rank)


def test_a_group_over_two_processes(two_ranks: Path) -> None:
    """Four generations of a prompt on two ranks of two rows each."""
    stored = Stored(two_ranks / "all" / "store")
    assert sorted(str(flat(r)) for r in stored) == notes_of_both(two_ranks / "all")
    assert len(stored) == 8
    groups = by_group(stored)
    assert len(groups) == 2 and stored.orphans == []
    for siblings in groups.values():
        assert sorted(r.index or 0 for r in siblings) == [0, 1, 2, 3]
        assert len({r.task for r in siblings}) == 1
        rewards = torch.tensor([float(r.reward or 0) for r in siblings])
        wanted_advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        found = torch.tensor([float(r.advantage or 0) for r in siblings])
        torch.testing.assert_close(found, wanted_advantages, rtol=1e-4, atol=1e-4)
    assert {r.fate for r in stored} == {"trained"}


@pytest.mark.parametrize(("kind", "groups"), [("grpo", 1), ("rloo", 2)])
def test_a_cap_holds_per_step_and_keeps_groups_whole_over_two_processes(
    two_ranks: Path, kind: str, groups: int
) -> None:
    """One group a step; or five rollouts, which whole groups make eight."""
    stored = Stored(two_ranks / kind / "store")
    made = notes_of_both(two_ranks / kind)
    assert {str(flat(r)) for r in stored} <= set(made) and len(made) > len(stored)
    found = by_group(stored)
    for siblings in found.values():
        assert sorted(r.index or 0 for r in siblings) == [0, 1, 2, 3]
        assert len({r.task for r in siblings}) == 1
    per_step = Counter((members[0].split, members[0].step) for members in found.values())
    wanted = dict.fromkeys([("train", 1), ("train", 2), ("eval", 1), ("eval", 2)], groups)
    assert per_step == wanted
    workers = {name: {r.worker for r in siblings} for name, siblings in found.items()}
    assert any(len(ranks) == 2 for ranks in workers.values())  # one that lies on both is kept
    assert stored.orphans == []
