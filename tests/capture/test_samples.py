"""Which rollouts are recorded when not all of them are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Rollout, Sample

from . import reading


def batch(step: int, groups: int = 20, size: int = 4) -> list[Rollout]:
    return [
        Rollout(step=step, split="train", task=f"q-{g}", index=i)
        for g in range(groups)
        for i in range(size)
    ]


def kept(store: Path, step: int | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in reading.rollouts(store):
        if step is None or r["step"] == step:
            found[r["task"]] = found.get(r["task"], 0) + 1
    return found


def test_a_batch_keeps_an_exact_number_of_whole_groups(own_store: Path) -> None:
    with rollscope.init(sample=Sample(groups_per_step=3)) as run:
        run.log(batch(1))
        run.log(batch(2))
    assert list(kept(own_store, 1).values()) == [4, 4, 4]
    assert list(kept(own_store, 2).values()) == [4, 4, 4]
    assert kept(own_store, 1) != kept(own_store, 2)
    assert reading.infos(own_store)[0].counters.sampled_out == 2 * 68


def test_whole_groups_win_over_an_exact_count_of_rollouts(own_store: Path) -> None:
    with rollscope.init(sample=Sample(rollouts_per_step=6)) as run:
        run.log(batch(1))
    assert list(kept(own_store).values()) == [4, 4]


def test_every_worker_makes_the_same_choice_however_rollouts_come(tmp_path: Path) -> None:
    stores = [tmp_path / name for name in ("batch", "one by one", "reversed")]
    for store in stores:
        with rollscope.init(dir=store, sample=Sample(fraction=0.3, seed=5)) as run:
            if store.name == "batch":
                run.log(batch(1))
            for rollout in {"one by one": batch(1), "reversed": batch(1)[::-1]}.get(store.name, []):
                run.log(rollout)
    first, second, third = map(kept, stores)
    assert first == second == third
    assert 0 < len(first) < 20
    assert set(first.values()) == {4}


@pytest.mark.parametrize(
    ("sample", "groups"),
    [(Sample(groups_per_step=3), 3), (Sample(rollouts_per_step=10), 3), (Sample(fraction=0.5), 0)],
)
def test_workers_that_share_a_batch_keep_the_same_groups_whole(
    tmp_path: Path, sample: Sample, groups: int
) -> None:
    """Two workers with every other rollout of each group, in two batches of one step."""
    found: Counter[str] = Counter()
    for worker in (0, 1):
        store = tmp_path / str(worker)
        with rollscope.init(dir=store, sample=sample) as run:
            for n in (0, 1):
                whole = [
                    Rollout(step=1, split="train", task=f"{n}-{g}", group=f"{n}-{g}", index=i)
                    for g in range(8)
                    for i in range(4)
                ]
                sizes = {f"{n}-{g}": 4 for g in range(8)}
                run.log(whole[worker::2], groups=sizes)
        found.update(kept(store))
    assert set(found.values()) == {4}
    assert len(found) == groups or (not groups and 0 < len(found) < 16)


def test_live_rollouts_are_sampled_too(own_store: Path) -> None:
    with rollscope.init(sample=Sample(groups_per_step=2)) as run:
        for group in range(5):
            for index in range(3):
                with run.rollout(step=1, task=f"q-{group}", index=index) as r:
                    r.message("user", "x")
    assert kept(own_store) == {"q-0": 3, "q-1": 3}


def test_facts_about_rollouts_that_were_left_out_are_left_out(own_store: Path) -> None:
    """Else they would be facts without a rollout, which look like a fault of the recording."""
    with rollscope.init(sample=Sample(groups_per_step=1)) as run:
        run.log([Rollout(step=1, task=f"t{n}", key=f"k{n}") for n in range(5)])
        for n in range(5):
            run.annotate(key=f"k{n}", advantage=float(n))
    (kept,) = reading.rollouts(own_store)
    assert [fact["rollout"] for fact in reading.facts(own_store)] == [kept["id"]]


def test_failed_rollouts_of_a_batch_are_kept_besides(own_store: Path) -> None:
    failed = Rollout(step=1, task="bad", fate="failed")
    with rollscope.init(sample=Sample(fraction=1e-9)) as run:
        run.log([*batch(1), failed])
    assert kept(own_store) == {"bad": 1}


def test_a_sample_that_cannot_judge_records_everything(own_store: Path) -> None:
    odd: Any = [1, 2]
    with rollscope.init(sample=Sample(fraction=0.5)) as run:
        run.log([Rollout(step=odd, task="t"), Rollout(step=1, task="u")])
    assert "u" in kept(own_store)
    assert any("sampling" in p.text for p in reading.infos(own_store)[0].problems)


def test_zero_is_none_and_none_is_all(own_store: Path) -> None:
    with rollscope.init(run="none", sample=Sample(groups_per_step=0)) as run:
        run.log([*batch(1), Rollout(step=1, task="bad", fate="failed")])
    assert kept(own_store) == {}
    with rollscope.init(run="all", sample=Sample()) as run:
        run.log(batch(1))
    assert len(kept(own_store)) == 20
