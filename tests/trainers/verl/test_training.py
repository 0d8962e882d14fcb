"""verl's own training, whole: `run_ppo`, the task runner and the workers as Ray actors, `fit()`.

See cpu.py for the three edges that are not real.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray
from checked import named_faults, silent
from cpu import REFERENCE, TRAINED, RunnerLegacy, RunnerV1, logprob, make_engine, training_config
from ray.cluster_utils import Cluster
from verl.trainer.main_ppo import run_ppo
from world import flat, lines, stored, wait_for

from rollscope.model import Rollout
from rollscope.store.writers import read_infos

RUNNERS = {"legacy": RunnerLegacy, "v1": RunnerV1}


def graded(text: str) -> float:
    """As the reward function that verl calls has it; see `cpu.GRADER`."""
    return sum(text.encode()) % 97 / 96


def check_with_the_engine(found: list[Rollout], config: Any) -> None:
    """Every rollout, its tokens, its words and its reward, against the engine's own record."""
    engine = make_engine(config)
    told = engine.conversations()
    by_ids = {tuple(flat(r)): r for r in found}
    assert len(found) == len(told) == len(by_ids) > 0
    for turns in told:
        first, last = turns[0], turns[-1]
        ids = last["prompt"] + last["ids"]
        rollout = by_ids[tuple(ids)]
        assert [m.content for m in rollout.messages if m.sampled] == [t["text"] for t in turns]
        engine.read(ids)
        response = ids[len(first["prompt"]) :]
        text = engine.tokenizer_real.decode(response, skip_special_tokens=True)
        assert rollout.reward == graded(text)
        assert rollout.rewards == {"score": rollout.reward, "acc": float(rollout.reward > 0.5)}
        assert rollout.reward_texts == {"pred": text[-3:]}


def check_advantages(group: list[Rollout]) -> None:
    """GRPO's, from the rewards; and the streams that the actor and the reference gave."""
    rewards = [r.reward for r in group]
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5
    for rollout in group:
        assert rollout.advantage == pytest.approx((rollout.reward - mean) / (std + 1e-6), abs=1e-4)
        mask = flat(rollout, "mask")
        for stream, base in (("train_logprob", TRAINED), ("ref_logprob", REFERENCE)):
            expected = [
                logprob(base, i) if m else None for i, m in zip(flat(rollout), mask, strict=True)
            ]
            assert flat(rollout, stream) == pytest.approx(expected)


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
    "prompt.prefix",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
    "version.future",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


@pytest.mark.parametrize("version", ["legacy", "v1"])
def test_a_whole_training_is_recorded_with_what_became_of_every_rollout(
    version: str, driver: Path, model: Path, tmp_path: Path
) -> None:
    config = training_config(model, tmp_path, "+speaks=agreeing")
    run_ppo(config, RUNNERS[version])

    def is_told(found: list[Rollout]) -> bool:
        fates = Counter((r.split, r.fate) for r in found)
        return fates["train", "trained"] == 8 and fates["eval", "scored"] == 6

    found = wait_for(driver, is_told)
    copies = [r for r in found if r.fate == "dropped"]
    # verl's legacy trainer fills a validation batch of three up for its two workers.
    assert len(copies) == (2 if version == "legacy" else 0)
    check_with_the_engine(found, config)
    train = [r for r in found if r.split == "train"]
    assert Counter((r.step, r.trained_step, str(r.task)) for r in train) == {
        (1, 1, "0"): 2, (1, 1, "1"): 2, (2, 2, "2"): 2, (2, 2, "3"): 2,
    }  # fmt: skip
    for task in "0123":
        group = [r for r in train if str(r.task) == task]
        assert len({r.group for r in group}) == 1 and {r.index for r in group} == {0, 1}
        check_advantages(group)
    evals = [r for r in found if r.split == "eval" and r.fate == "scored"]
    assert Counter((r.step, str(r.task)) for r in evals) == {
        (step, str(task)): 1 for step in (0, 2) for task in (900, 901, 902)
    }
    assert all(r.advantage is None and r.trained_step is None for r in evals)
    check_metrics(driver, found)
    assert silent(driver) >= LOOKED
    if version == "v1":
        assert named_faults(driver, tmp_path / "planted") >= LOOKED


def check_metrics(store: Path, found: list[Rollout]) -> None:
    """verl's own numbers of each step are there, and agree with the rollouts."""
    metrics: dict[int, dict[str, float]] = {}
    for _, line in lines(store):
        if "metrics" in line:
            metrics.setdefault(line["metrics"]["step"], {}).update(line["metrics"]["values"])
    assert set(metrics) == {0, 1, 2}
    for step in (1, 2):
        rewards = [r.reward for r in found if (r.split, r.step) == ("train", step)]
        mean = sum(rewards) / len(rewards)
        assert metrics[step]["critic/score/mean"] == pytest.approx(mean, abs=1e-5)
        assert metrics[step]["actor/loss"] == 0.5
    for step in (0, 2):
        evals = [r for r in found if (r.split, r.step, r.fate) == ("eval", step, "scored")]
        (name,) = [n for n in metrics[step] if n.startswith("val-") and "score/mean" in n]
        assert metrics[step][name] == pytest.approx(sum(r.reward for r in evals) / 3, abs=1e-5)


NO_VALIDATION = ("trainer.test_freq=-1", "trainer.val_before_train=False")
ONE_STEP = ("trainer.total_training_steps=1", *NO_VALIDATION)


def fates(found: list[Rollout]) -> Counter[tuple[str | None, str | None]]:
    return Counter((r.fate, r.fate_reason) for r in found)


def test_groups_without_signal_and_groups_too_many_are_dropped_with_the_reason(
    driver: Path, model: Path, tmp_path: Path
) -> None:
    """The v1 trainer's dynamic sampling: prompt 1 is filtered and two prompts take its place,
    which is one group more than the batch takes."""
    config = training_config(
        model,
        tmp_path,
        *ONE_STEP,
        "+speaks=dull",
        "algorithm.filter_groups.enable=True",
        "algorithm.filter_groups.metric=reward",
        "algorithm.filter_groups.max_inflight_gen_batches=2",
    )
    run_ppo(config, RunnerV1)
    expected = {
        ("trained", None): 4,
        ("dropped", "filter_groups: same reward in the whole group"): 2,
        ("dropped", "surplus: more groups than the batch takes"): 2,
    }
    found = wait_for(driver, lambda r: fates(r) == expected)
    same = [r for r in found if r.fate_reason and r.fate_reason.startswith("filter_groups")]
    assert {str(r.task) for r in same} == {"1"} and len({r.reward for r in same}) == 1
    for rollout in found:
        assert (rollout.advantage is None) == (rollout.fate == "dropped")
        assert (rollout.trained_step is None) == (rollout.fate == "dropped")
        assert len([m for m in rollout.messages if m.sampled]) == 2


def test_groups_that_are_too_old_or_failed_are_dropped_with_the_reason(
    driver: Path, model: Path, tmp_path: Path
) -> None:
    """The asynchronous v1 trainer: one batch is generated ahead, and may not be a step old."""
    config = training_config(
        model,
        tmp_path,
        *NO_VALIDATION,
        "+speaks=failing",
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.sampler.max_off_policy_threshold=1",
        "trainer.v1.sampler.max_off_policy_strategy=drop",
        prompts=16,
    )
    run_ppo(config, RunnerV1)
    expected = {
        ("trained", None): 8,
        ("failed", "the agent loop raised"): 1,
        ("dropped", "failed group: one of its rollouts failed"): 1,
        ("dropped", "off-policy: too old"): 4,
        ("scored", None): 4,  # generated ahead at the last step, and never asked for
    }
    found = wait_for(driver, lambda r: fates(r) == expected)
    (failed,) = [r for r in found if r.fate == "failed"]
    assert (failed.error.type, failed.error.text) == ("ConnectionError", "engine is gone")
    (sibling,) = [r for r in found if r.fate_reason and r.fate_reason.startswith("failed group")]
    assert failed.group == sibling.group and str(failed.task) == "1"
    assert {r.step for r in found if r.fate_reason == "off-policy: too old"} == {1}
    assert Counter(r.trained_step for r in found) == {1: 4, 2: 4, None: 10}


def test_rows_of_a_checkpoint_belong_to_the_launch_that_made_them(
    driver: Path, cluster: Cluster, model: Path, tmp_path: Path
) -> None:
    """The asynchronous v1 trainer generates a batch ahead. TransferQueue's checkpoint keeps it, and
    the restart, which is another driver, trains on it."""
    for steps in (1, 2):
        config = training_config(
            model,
            tmp_path,
            *NO_VALIDATION,
            "trainer.v1.trainer_mode=colocate_async",
            "trainer.save_freq=1",
            "trainer.resume_mode=auto",
            f"trainer.total_training_steps={steps}",
            prompts=16,
        )
        run_ppo(config, RunnerV1)
        found = wait_for(driver, lambda r, n=4 * steps: fates(r)["trained", None] >= n)
        if steps == 1:
            waiting = {r.id for r in found if r.fate == "scored"}
            ray.shutdown()
            ray.init(address=cluster.address, log_to_driver=False)
    launches = {info.launch for info in read_infos(driver / "maths" / "tiny").values()}
    assert len(launches) == 2
    inherited = [r for r in found if r.id in waiting and r.trained_step == 2]
    assert inherited and all(r.advantage is not None for r in inherited)
    facts = {fact["rollout"] for _, line in lines(driver) for fact in line.get("facts", ())}
    assert facts <= {r.id for r in found}, "facts without a rollout"


@pytest.mark.parametrize("version", ["legacy", "v1"])
def test_rollouts_that_are_still_being_decoded_when_the_training_ends_are_not_lost(
    version: str, driver: Path, model: Path, tmp_path: Path
) -> None:
    """Ray kills the workers as soon as the trainer's process ends."""
    run_ppo(training_config(model, tmp_path, *ONE_STEP, "+speaks=slow"), RUNNERS[version])
    found = stored(driver)
    assert fates(found) == {("trained", None): 4}
    assert all(len([m for m in r.messages if m.sampled]) == 2 for r in found)


@pytest.mark.parametrize("version", ["legacy", "v1"])
def test_rollouts_of_which_verl_rejects_every_token_are_masked_not_trained(
    version: str, driver: Path, model: Path, tmp_path: Path
) -> None:
    config = training_config(
        model,
        tmp_path,
        *ONE_STEP,
        "+speaks=drifting",
        "algorithm.rollout_correction.rollout_rs=seq_mean_k2",
        "algorithm.rollout_correction.rollout_rs_threshold='1.0'",
    )
    run_ppo(config, RUNNERS[version])
    reason = "rollout correction: every token was rejected"
    expected = {("trained", None): 2, ("masked", reason): 2}
    found = wait_for(driver, lambda r: fates(r) == expected)
    assert {(str(r.task), r.fate) for r in found} == {("0", "trained"), ("1", "masked")}


@pytest.mark.parametrize("version", ["legacy", "v1"])
def test_a_broken_adapter_leaves_the_training_as_it_is(
    version: str, driver: Path, model: Path, tmp_path: Path
) -> None:
    """verl's own account of what it trained on agrees with the engine's."""
    config = training_config(
        model, tmp_path, *ONE_STEP, "+is_broken=True", f"trainer.rollout_data_dir={tmp_path}/dump"
    )
    run_ppo(config, RUNNERS[version])
    engine = make_engine(config)
    told = []
    for turns in engine.conversations():
        ids = turns[-1]["prompt"] + turns[-1]["ids"]
        engine.read(ids)
        response = ids[len(turns[0]["prompt"]) :]
        text = engine.tokenizer_real.decode(response, skip_special_tokens=True)
        told.append((text, pytest.approx(graded(text)), 1))
    (dump,) = (tmp_path / "dump").glob("*.jsonl")
    rows = [json.loads(line) for line in dump.read_text().splitlines()]
    got = [(row["output"], row["score"], row["step"]) for row in rows]
    assert sorted(got) == sorted(told, key=lambda row: row[0]) and len(got) == 4
    # Never told more. Nobody waits for the workers, and Ray may kill one before it has decoded.
    found = wait_for(driver, lambda r: len(r) == 4 and ("scored", None) in fates(r))
    assert set(fates(found)) <= {("scored", None), (None, None)}
    assert all(r.advantage is None for r in found)
