"""TRL's own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from world import VERSION, Rewards, since, trainer

from rollscope.adapters import trl as adapter

pytestmark = pytest.mark.usefixtures("strict")


@since("0.28", "the parquet of completions")
def test_completions_parquet_is_read(tmp_path: Path) -> None:
    rewards = Rewards()
    made = trainer(tmp_path, rewards, log_completions=True, num_completions_to_print=0, max_steps=3)
    made.train()
    path = tmp_path / "my-run"
    assert adapter.recognise(path) and adapter.recognise(next(path.rglob("*.parquet")))
    rollouts = list(adapter.read(path))
    assert len(rollouts) == len(rewards.notes) == 12
    for rollout, note in zip(rollouts, rewards.notes, strict=True):
        parts = {k: note[k] for k in ("variety", "vowels") if note[k] is not None}
        assert rollout.rewards == pytest.approx(parts)
        assert rollout.step == note["updates"] + 1
        said = rollout.messages[-1].content
        assert said == note["said"][0]["content"]
        assert "Be brief." in str(rollout.messages[0].content)  # once all of the prompt, as text
        assert rollout.meta.get("length") == (len(note["ids"]) if VERSION >= (1, 0) else None)
        assert rollout.advantage is not None
    assert [r.index for r in rollouts] == [0, 1, 2, 3] * 3
    assert len({r.group for r in rollouts}) == 3


def test_other_parquet_files_are_not_taken_for_trls(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "completions_00001.parquet"
    duckdb.execute(f"COPY (SELECT 1 AS step) TO '{path}' (FORMAT parquet)")
    assert not adapter.recognise(path)
    assert not adapter.recognise(tmp_path / "nothing")
