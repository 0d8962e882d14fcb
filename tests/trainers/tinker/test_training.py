"""tinker-cookbook's own `train.main`, in all its loops, with only the hosted service replaced."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checked import named_faults, silent
from service import LESS, Service, samples
from stored import Stored, flat
from tinker_cookbook.rl import rollouts, train
from training import EVALUATES_LAST, groups, known, run
from world import Batches, Builder

from rollscope.adapters import tinker
from rollscope.adapters.tinker import loop
from rollscope.model import Rollout

pytestmark = pytest.mark.usefixtures("strict")


def compare(stored: Stored, notes: Path) -> None:
    """Every sample of the service is stored, with its prompt and log probabilities."""
    wanted = [(s["shown"] + s["wrote"], s["logprobs"], s["temperature"]) for s in samples(notes)]
    found = [
        (
            flat(r),
            [v for v in flat(r, "logprob") if v is not None],
            r.sampling["temperature"],
        )
        for r in stored
    ]
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def check_advantages(rollouts_: list[Rollout]) -> None:
    by_group: dict[str, list[Rollout]] = {}
    for rollout in rollouts_:
        by_group.setdefault(str(rollout.group), []).append(rollout)
    for siblings in by_group.values():
        mean = sum(float(r.reward or 0) for r in siblings) / len(siblings)
        for rollout in siblings:
            assert rollout.advantage == pytest.approx(float(rollout.reward or 0) - mean, abs=1e-6)


LOOKED = {
    "advantage.mean",
    "advantage.order",
    "advantage.sign",
    "fate.contradiction",
    "fate.unfinished",
    "group.size",
    "group.slot",
    "logprob.missing",
    "logprob.odd",
    "mask.empty",
    "mask.foreign",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_every_rollout_of_a_run(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = run(tmp_path, monkeypatch, [groups(1, 2), groups(3, 4), groups(5, 6)])
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert stored.projects == {("sums", "run-1")} and stored.orphans == []
    assert Counter((r.step, r.group) for r in stored) == {
        (step, f"train/{step}/{g}"): 3 for step in range(3) for g in range(2)
    }
    for rollout in stored:
        assert (rollout.fate, rollout.trained_step) == ("trained", rollout.step)
        assert rollout.policy_version == rollout.step
        assert sorted({s.name for s in rollout.spans}) == ["env.step", "sample"]
    check_advantages(list(stored))
    _compare_rows(stored, service)
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


def _compare_rows(stored: Stored, service: Service) -> None:
    """What the service was told to train on is what is stored beside the tokens."""
    wanted = sorted(
        str((row["target_tokens"], row["advantages"], [v - LESS for v in row["logprobs"]]))
        for row in service.rows()
    )
    found = []
    for rollout in stored:
        advantages = [0.0 if v is None else v for v in flat(rollout, "advantage")[1:]]
        logprobs = [-LESS if v is None else v for v in flat(rollout, "train_logprob")[1:]]
        found.append(str((flat(rollout)[1:], advantages, logprobs)))
    assert sorted(found) == wanted


def test_the_trainers_own_numbers_stand_at_their_step(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, [groups(1), groups(2)])
    metrics = Stored(own_store).metrics
    lines = (tmp_path / "sums" / "run-1" / "metrics.jsonl").read_text().splitlines()
    for entry in map(json.loads, lines):
        for name, value in entry.items():
            if name != "step" and isinstance(value, (int, float)):
                assert metrics[entry["step"]][name] == pytest.approx(value)
    assert metrics[1]["optim/norm"] == 1.0


def test_constant_groups_are_dropped_and_kept(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9+2 is always answered right: nothing to learn."""
    run(
        tmp_path,
        monkeypatch,
        [groups(1, 9), groups(9, 2)],
        remove_constant_reward_groups=True,
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    for rollout in stored:
        constant = "9+2" in str(rollout.messages[1].content)
        assert rollout.fate == ("dropped" if constant else "trained")
        assert rollout.fate_reason == ("constant reward" if constant else None)
        assert (rollout.advantage is None) == constant


def test_evaluations_have_the_step_of_their_weights(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tmp_path,
        monkeypatch,
        [groups(1), groups(2), groups(3)],
        test=[groups(4, 5, size=1), groups(6, 7, size=1)],
        eval_every=2,
    )
    stored = Stored(own_store)
    assert len(stored) == len(samples(tmp_path / "service"))
    evaluated = [r for r in stored if r.split == "eval"]
    steps = (0, 2, 3) if EVALUATES_LAST else (0, 2)
    assert Counter(r.step for r in evaluated) == dict.fromkeys(steps, 4)
    assert len({r.key for r in evaluated}) == len(evaluated)
    questions = {
        step: sorted(str(r.messages[1].content).strip() for r in evaluated if r.step == step)
        for step in steps
    }
    assert all(asked == ["4+2=?", "5+2=?", "6+2=?", "7+2=?"] for asked in questions.values())
    assert {r.fate for r in evaluated} == {"scored"}
    by_ids = {str(s["shown"] + s["wrote"]): s["version"] for s in samples(tmp_path / "service")}
    for rollout in evaluated:
        assert rollout.policy_version in (rollout.step, None)
        assert by_ids[str(flat(rollout))] in steps


def test_streamed_minibatches(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tmp_path,
        monkeypatch,
        [groups(1, 2), groups(3, 4)],
        stream_minibatch_config=train.StreamMinibatchConfig(groups_per_batch=2, num_minibatches=2),
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert {(r.fate, r.trained_step == r.step) for r in stored} == {("trained", True)}
    check_advantages(list(stored))


def test_asynchronous_training(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"max_steps_off_policy": 1, "groups_per_batch": 2, "loss_fn": "importance_sampling"}
    run(
        tmp_path,
        monkeypatch,
        [groups(n, n + 1) for n in range(1, 13, 2)],
        async_config=known(train.AsyncConfig, **how),
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    trained = [r for r in stored if r.fate == "trained"]
    assert trained and {r.fate for r in stored} <= {"trained", "dropped", "scored"}
    check_advantages(trained)
    for rollout in trained:
        assert rollout.trained_step is not None and rollout.policy_version is not None
        assert 0 <= rollout.trained_step - rollout.policy_version <= 1


def test_several_datasets_of_one_run_are_told_apart(own_store: Path, tmp_path: Path) -> None:
    """As in on-policy distillation, which draws a batch from each, and evaluates by itself."""
    from service import Sampling
    from tinker_cookbook.rl.metric_util import RLTestSetEvaluator

    notes = tmp_path / "service"
    notes.mkdir()

    async def main() -> None:
        builders = [
            Builder(train=Batches([groups(n), groups(n)]), test=Batches([groups(n + 4, size=1)]))
            for n in (1, 2)
        ]
        made = [await tinker.traced(builder)() for builder in builders]
        evaluators = [RLTestSetEvaluator(test, max_tokens=32) for _, test in made]
        for step in range(2):
            for evaluator in evaluators:
                await evaluator(Sampling(str(notes), step))
            for dataset, _ in made:
                for builder in dataset.get_batch(step):
                    await train.do_group_rollout_and_filter_constant_reward(
                        Sampling(str(notes), step),
                        builder,
                        max_tokens=32,
                        temperature=1.0,
                        do_remove_constant_reward_groups=False,
                    )

    asyncio.run(main())
    stored = Stored(own_store)
    compare(stored, notes)
    assert len({r.group for r in stored if r.split == "train"}) == 4
    assert Counter((r.split, r.step) for r in stored) == {
        ("train", 0): 6,
        ("train", 1): 6,
        ("eval", 0): 2,
        ("eval", 1): 2,
    }


def test_rollouts_in_other_processes(own_store: Path, tmp_path: Path) -> None:
    """A pool of processes, as tinker-cookbook has it: the parent's own report stays empty."""
    notes = tmp_path / "service"
    notes.mkdir()

    async def main() -> None:
        from service import Sampling

        batches = Batches([groups(1, 2, 3, 9)])
        dataset, _ = await tinker.traced(Builder(train=batches), project="p", run="r")()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            rollouts.set_rollout_executor(pool)
            try:
                made = await asyncio.gather(
                    *[
                        train.do_group_rollout_and_filter_constant_reward(
                            Sampling(str(notes), 0),
                            builder,
                            max_tokens=32,
                            temperature=0.5,
                            do_remove_constant_reward_groups=True,
                        )
                        for builder in dataset.get_batch(0)
                    ]
                )
            finally:
                rollouts.set_rollout_executor(None)
            train.compute_advantages([group for group in made if group is not None])
        assert [group is None for group in made] == [False, False, False, True]

    asyncio.run(main())
    stored = Stored(own_store)
    compare(stored, notes)
    assert stored.projects == {("p", "r")} and stored.orphans == []
    assert len({s["pid"] for s in samples(notes)}) == 2
    assert len({r.launch for r in stored}) == 1
    trained = [r for r in stored if r.fate == "trained"]
    assert len(trained) == 9 and len(stored) == 12
    check_advantages(trained)  # told by the parent, joined by key
    assert {r.fate_reason for r in stored if r.fate == "dropped"} == {"constant reward"}


def test_a_broken_adapter_trains_on_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLSCOPE_STRICT")
    batches = [groups(1, 2), groups(3, 4)]
    without = run(tmp_path / "a", monkeypatch, batches, traced=False).rows()

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    for name in ("_begin", "_end", "_learned", "_annotate", "_trained_on", "_watched"):
        monkeypatch.setattr(loop, name, fail)
    assert run(tmp_path / "b", monkeypatch, batches).rows() == without


def test_the_same_rows_with_and_without(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [groups(1, 2), groups(3, 9)]
    without = run(tmp_path / "a", monkeypatch, batches, traced=False).rows()
    assert not own_store.exists()
    assert run(tmp_path / "b", monkeypatch, batches).rows() == without
    assert len(Stored(own_store)) == 12


def test_a_loop_without_a_seam_is_told_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(train, "remove_constant_reward_groups")
    loop.attach()
    assert "tinker_cookbook.rl.train has no remove_constant_reward_groups" in caplog.text


def test_the_originals_come_back() -> None:
    before = train.compute_advantages
    loop.attach()
    assert train.compute_advantages is not before
    loop.detach()
    assert train.compute_advantages is before
