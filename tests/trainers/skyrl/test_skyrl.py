"""Every rollout of SkyRL's real trainers, against the records of engine, environment, optimiser."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import world
from checked import named_faults, silent
from skyrl.train.generators.base import BatchMetadata, TrajectoryID
from stored import Stored, complaints, flat, written
from world import TOK, WORLD

import rollscope
from rollscope import capture
from rollscope.adapters import skyrl
from rollscope.adapters.skyrl import hook
from rollscope.capture.problems import problems
from rollscope.model import Rollout

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def no_run_is_left() -> Iterator[None]:
    yield
    if (run := capture.active()) is not None:
        run.finish()


def train(store: Path, *, tasks: int = 6, dp: int = 1, kind: Any = None, **options: Any) -> Stored:
    trainer = world.make(world.config(**options), tasks=tasks, dp=dp, kind=kind)
    skyrl.attach(trainer)
    asyncio.run(trainer.train())
    found = Stored(store)
    assert found.orphans == []
    return found


def check_against_engine(found: Stored) -> None:
    """Every episode is there once, with its prompt, tokens, log probabilities and reward."""
    by_first = Counter(written(rollout)[0] for rollout in found)
    assert by_first == Counter(episode.actions[0] for episode in WORLD.episodes)
    for rollout in found:
        episode = WORLD.episode(written(rollout)[0])
        assert written(rollout) == episode.actions
        last = WORLD.answers[episode.actions[-1]]
        assert flat(rollout) == last["prompt"] + last["ids"]
        assert rollout.messages[0].content == "guess well"
        assert rollout.messages[1].content == f"question {episode.task} ñ"
        sampled = [m for m in rollout.messages if m.sampled]
        for message, action in zip(sampled, episode.actions, strict=True):
            tokens = message.tokens
            assert tokens is not None
            drawn = [p for p in tokens.logprob if p is not None]
            assert drawn == torch.tensor(WORLD.answers[action]["logprobs"]).tolist()
            text = str(message.content)
            assert text[: tokens.ends[-1]] == text
        assert str(rollout.task).removeprefix("eval:") == str(episode.task)
        assert rollout.reference == str(episode.task)
        assert rollout.dataset == "numbers"
        assert rollout.environment == "guess"
        assert rollout.stop_reason == "stop"
        assert rollout.truncated is False
        assert rollout.meta["env_extras"]["task"] == episode.task
        assert rollout.policy_version == 1
        assert rollout.sampling["temperature"] in (0.75, 0.0, 1.0)
        assert rollout.end is not None and rollout.start is not None
        assert rollout.end > rollout.start


def check_against_optimiser(found: Stored) -> None:
    """What was trained on, with its advantages and the step, and nothing else."""
    trained = [rollout for rollout in found if rollout.fate == "trained"]
    used: set[str | None] = set()
    for row in WORLD.trained:
        owner = [r for r in trained if flat(r)[: len(row["ids"])] == row["ids"]]
        assert len(owner) == 1, f"{len(owner)} rollouts begin with this trained row"
        rollout = owner[0]
        used.add(rollout.id)
        assert rollout.trained_step == row["step"]
        begin = len(row["ids"]) - len(row["mask"])
        stored = flat(rollout, "advantage")[begin : len(row["ids"])]
        expected = [a if m else None for a, m in zip(row["advantages"], row["mask"], strict=True)]
        assert stored == expected
        assert flat(rollout, "train_logprob")[begin : len(row["ids"])] == row["logprobs"]
        assert rollout.advantage == pytest.approx(next(a for a in expected if a is not None))
    assert used == {rollout.id for rollout in trained}


def check_groups(found: Stored, size: int) -> None:
    groups: dict[Any, list[Rollout]] = {}
    for rollout in found:
        groups.setdefault(rollout.group, []).append(rollout)
    for members in groups.values():
        assert sorted(m.index for m in members) == list(range(size))
        assert len({m.task for m in members}) == len({m.step for m in members}) == 1


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
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_sync_training_is_recorded_whole(own_store: Path, tmp_path: Path) -> None:
    found = train(own_store)
    assert len(found) == 18
    check_against_engine(found)
    check_against_optimiser(found)
    check_groups(found, 3)
    assert {r.fate for r in found} == {"trained"}
    assert {r.split for r in found} == {"train"}
    assert all(r.step == r.trained_step for r in found)
    for rollout in found:
        episode = WORLD.episode(written(rollout)[0])
        assert rollout.reward == sum(episode.rewards)
        assert [m.reward for m in rollout.messages if m.sampled] == episode.rewards
        assert rollout.meta["env_metrics"] == {"turns": len(episode.actions)}
    assert found.projects == {("numbers", "first try")}
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


def test_each_turn_as_a_row_makes_one_rollout_and_padding_rows_make_none(own_store: Path) -> None:
    found = train(own_store, step_wise=True, dp=6, tasks=4)
    check_against_engine(found)
    check_against_optimiser(found)
    check_groups(found, 3)
    assert WORLD.pads > 0
    assert len(WORLD.trained) > len(found)
    for rollout in found:
        episode = WORLD.episode(written(rollout)[0])
        assert rollout.reward == episode.rewards[-1]  # what SkyRL trains on
        assert [m.reward for m in rollout.messages if m.sampled] == episode.rewards
        assert {m.stop_reason for m in rollout.messages if m.sampled} == {"stop"}


def test_merged_turns_find_their_rollout_by_id_and_tokens(own_store: Path) -> None:
    found = train(own_store, step_wise=True, merge=True)
    check_against_engine(found)
    check_against_optimiser(found)
    assert len(WORLD.trained) == len(found)


def test_a_single_reward_for_the_whole_answer(own_store: Path) -> None:
    found = train(own_store, batched=True)
    check_against_optimiser(found)
    assert len(found) == len(WORLD.episodes)
    for rollout in found:
        episode = WORLD.episode(written(rollout)[0])
        assert rollout.reward == episode.rewards[-1]
        assert (
            flat(rollout)[-len(WORLD.answers[episode.actions[0]]["ids"]) :]
            == (WORLD.answers[episode.actions[0]]["ids"])
        )
        assert all(m.reward is None for m in rollout.messages)


@pytest.mark.parametrize("kind", ["filter", "replace"])
def test_dynamic_sampling_drops_are_told_apart_from_what_was_trained(
    own_store: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "replace":
        # SkyRL 0.3.0 stops at a check of its own as soon as a group is replaced.
        monkeypatch.setattr(
            "skyrl.train.trainer.compute_prompt_mini_batch_boundaries", lambda uids, *_: [(0, 6)]
        )
    found = train(own_store, sampling=kind, tasks=8)
    check_against_engine(found)
    trained_ids = [row["ids"] for row in WORLD.trained]
    for rollout in found:
        if rollout.fate == "trained":
            assert flat(rollout) in trained_ids
        else:
            # The last batches of an epoch may be generated and never come to a step.
            assert flat(rollout) not in trained_ids
            assert rollout.fate in ("dropped", "scored")
            assert rollout.fate != "dropped" or rollout.fate_reason == f"dynamic sampling ({kind})"
    assert {flat(r).__repr__() for r in found if r.fate == "trained"} == {
        ids.__repr__() for ids in trained_ids
    }
    constant = [r for r in found if r.task == "0"]
    assert constant and all(r.fate == "dropped" for r in constant)


def test_a_trainer_that_generates_one_step_ahead_drops_nothing(own_store: Path) -> None:
    found = train(own_store, kind=world.OneStepOff, tasks=8)
    check_against_engine(found)
    check_against_optimiser(found)
    check_groups(found, 3)
    assert Counter(r.fate for r in found) == {"trained": 24}
    assert {r.trained_step - r.step for r in found} == {0, 1}


def test_fully_async_training_tells_staleness(own_store: Path) -> None:
    found = train(own_store, is_async=True, tasks=8)
    check_against_engine(found)
    check_against_optimiser(found)
    check_groups(found, 3)
    assert len(found) == 24
    late = [r.trained_step - r.step for r in found]
    assert min(late) == 0 and max(late) > 0
    staleness = [v["async/staleness_max"] for _, v in WORLD.logged if "async/staleness_max" in v]
    assert max(late) == max(staleness)


@pytest.mark.parametrize("merge", [False, True])
def test_fully_async_with_each_turn_as_a_row(own_store: Path, merge: bool) -> None:
    found = train(own_store, is_async=True, step_wise=True, merge=merge)
    check_against_engine(found)
    check_against_optimiser(found)


def test_groups_that_async_training_drops_are_recorded_as_dropped(own_store: Path) -> None:
    found = train(own_store, is_async=True, full_batch=True, tasks=8)
    check_against_engine(found)
    check_against_optimiser(found)
    constant = [r for r in found if r.task == "0"]
    assert len(constant) == 3
    assert {(r.fate, r.fate_reason) for r in constant} == {
        ("dropped", "zero variance (sample_full_batch)")
    }
    assert {r.fate for r in found} <= {"trained", "dropped"}


@pytest.mark.parametrize("options", [{}, {"step_wise": True}, {"is_async": True}])
def test_evaluation_is_recorded_beside_training(own_store: Path, options: dict[str, Any]) -> None:
    found = train(own_store, eval_interval=1, tasks=4, **options)
    check_against_engine(found)
    check_against_optimiser(found)
    evals = [r for r in found if r.split == "eval"]
    assert {r.step for r in evals} == {0, 1, 2}
    assert len(evals) == 3 * 3 * 2  # three rounds of three tasks, twice each
    assert {r.fate for r in evals} == {"scored"}
    assert {r.task for r in evals} == {"eval:0", "eval:1", "eval:2"}
    assert {r.index for r in evals} == {0, 1}


def test_two_epochs_keep_the_same_task_apart_by_step(own_store: Path) -> None:
    found = train(own_store, tasks=4, epochs=2)
    check_against_engine(found)
    check_groups(found, 3)
    assert Counter(r.task for r in found) == {str(i): 6 for i in range(4)}


def test_masks_of_overlong_filtering_do_not_hide_who_wrote_what(own_store: Path) -> None:
    trainer = world.make(world.config(overlong=True))
    WORLD.stop_reason = "length"
    skyrl.attach(trainer)
    asyncio.run(trainer.train())
    found = Stored(own_store)
    assert {r.fate for r in found} == {"masked"}
    for rollout in found:
        assert written(rollout) == WORLD.episode(written(rollout)[0]).actions
        assert rollout.truncated is True
        assert set(flat(rollout, "mask")) == {None, 0}


def test_metrics_of_the_tracker_stand_at_their_step(own_store: Path) -> None:
    found = train(own_store, eval_interval=1, tasks=4)
    expected: dict[int, dict[str, float]] = {}
    for step, values in WORLD.logged:
        numbers = {k: float(v) for k, v in values.items() if isinstance(v, (int, float))}
        expected.setdefault(step, {}).update(numbers)
    assert found.metrics == expected
    assert "reward/avg_raw_reward" in found.metrics[1]


def test_a_failed_call_is_recorded_and_raises_as_before(own_store: Path) -> None:
    trainer = world.make(world.config())
    WORLD.fail_on = "1/1"
    skyrl.attach(trainer)
    with pytest.raises(RuntimeError, match="the sandbox is gone"):
        asyncio.run(trainer.train())
    failed = [r for r in Stored(own_store) if r.fate == "failed"]
    assert failed
    for rollout in failed:
        assert rollout.error is not None
        assert (rollout.error.type, rollout.error.text) == ("RuntimeError", "the sandbox is gone")
        assert [m.role for m in rollout.messages] == ["system", "user"]
        assert rollout.messages[1].content == f"question {rollout.task} ñ"


def test_the_failing_call_is_on_disk_before_skyrl_ends_the_process(
    own_store: Path, tmp_path: Path
) -> None:
    """The fully asynchronous trainer calls `os._exit` as soon as it has the error."""
    code = """
import asyncio, world
from rollscope.adapters import skyrl
trainer = world.make(world.config(is_async=True), tasks=8)
world.WORLD.fail_on = "4/0"
asyncio.run(skyrl.attach(trainer).train())
"""
    path = os.pathsep.join([str(Path(capture.__file__).parents[2]), *map(str, (HERE, HERE.parent))])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    failed = [r for r in Stored(own_store) if r.fate == "failed"]
    assert {r.task for r in failed} == {"4"} and len(failed) == 3
    assert {r.error.text for r in failed if r.error is not None} == {"the sandbox is gone"}


@pytest.mark.parametrize("other", [1, 4])
def test_rows_that_share_one_list_are_told_apart(own_store: Path, other: int) -> None:
    """Row 0 and a sibling of it, or a row of another group."""
    trainer = world.make(world.config(batched=True), tasks=2)
    inner = trainer.generator.generate

    async def sharing(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = await inner(batch, *args, **kwargs)
        for name in ("response_ids", "loss_masks", "rollout_logprobs"):
            made[name][other] = made[name][0]
        return made

    trainer.generator.generate = sharing
    skyrl.attach(trainer)
    asyncio.run(trainer.train())
    found = Stored(own_store)
    assert Counter(r.fate for r in found) == {"trained": 6}
    stored = sorted((flat(r), flat(r, "advantage")[-1]) for r in found)
    assert stored == sorted((row["ids"], row["advantages"][-1]) for row in WORLD.trained)


def test_what_skyrl_says_nothing_about_is_let_go_of_and_counted(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_PATIENCE", 1)
    trainer = world.make(world.config(), tasks=8)
    recorder = skyrl.attach(trainer)._rollscope
    convert = trainer.convert_to_training_input

    def first_group_only(output: Any, uids: Any) -> Any:
        lists = {k: v[:3] if isinstance(v, list) else v for k, v in output.items()}
        return convert(lists, uids[:3])

    monkeypatch.setattr(
        "skyrl.train.trainer.compute_prompt_mini_batch_boundaries", lambda uids, *_: [(0, 3)]
    )
    trainer.convert_to_training_input = first_group_only
    asyncio.run(trainer.train())
    recorder.later.drain()
    assert len(recorder.made._calls) == 1  # of four
    assert len(recorder.made._rows) == 6
    told = [p for p in problems.list({}) if "it stays `scored`" in p.text]
    assert sum(p.count for p in told) == 9
    assert Counter(r.fate for r in Stored(own_store)) == {"trained": 12, "scored": 12}


def test_misaligned_rows_are_unmatched_never_guessed() -> None:
    prompts = [[{"role": "user", "content": f"q{i}"}] for i in range(6)]
    given = {
        "prompts": prompts,
        "env_classes": ["guess"] * 6,
        "env_extras": [{"task": i} for i in range(6)],
        "trajectory_ids": [TrajectoryID(str(i // 3), i % 3) for i in range(6)],
        "batch_metadata": BatchMetadata(global_step=4, training_phase="train"),
    }
    ids = [TOK.encode(f"a{i}") for i in range(5)]
    made = {
        "prompt_token_ids": [TOK.encode("p")] * 5,
        "response_ids": ids,
        "rewards": [1.0] * 5,
        "loss_masks": [[1] * len(i) for i in ids],
        "stop_reasons": ["stop"] * 4,
    }
    problems: list[str] = []
    found = skyrl.convert(given, made, tokenizer=TOK, problems=problems)
    assert len(found) == 5
    for i, rollout in enumerate(found):
        assert written(rollout) == [f"a{i}"]
        assert (rollout.group, rollout.index, rollout.key) == (None, None, None)
        assert rollout.environment is None and rollout.reference is None
        assert rollout.stop_reason is None  # four reasons for five rows
        assert rollout.meta["unmatched"] == "5 rows for 6 prompts"
    assert any("unmatched" in text for text in problems)
    assert any("stop_reasons" in text for text in problems)


def test_twice_as_many_rows_as_prompts_are_taken_as_blocks() -> None:
    given = {
        "prompts": [[{"role": "user", "content": f"q{i}"}] for i in range(2)],
        "env_classes": ["guess"] * 2,
        "trajectory_ids": [TrajectoryID("7", 0), TrajectoryID("8", 0)],
        "batch_metadata": BatchMetadata(global_step=4, training_phase="train"),
    }
    ids = [TOK.encode(f"a{i}") for i in range(4)]
    made = {
        "prompt_token_ids": [TOK.encode("p")] * 4,
        "response_ids": ids,
        "rewards": [1.0] * 4,
        "loss_masks": [[1] * len(i) for i in ids],
    }
    found = skyrl.convert(given, made, tokenizer=TOK)
    assert [(r.task, r.index) for r in found] == [("7", 0), ("7", 1), ("8", 0), ("8", 1)]


def test_a_trained_row_that_nobody_made_is_counted_and_left_alone(own_store: Path) -> None:
    trainer = world.make(world.config())
    skyrl.attach(trainer)
    convert = trainer.convert_to_training_input

    def foreign(output: Any, uids: Any) -> Any:
        output["response_ids"][0] = [*output["response_ids"][0][:-1], 5]
        return convert(output, uids)

    trainer.convert_to_training_input = foreign
    asyncio.run(trainer.train())
    texts = complaints()
    assert any("1 of 6 trained rows match no rollout" in text for text in texts)
    found = Stored(own_store)
    assert Counter(r.fate for r in found) == {"trained": 15, "scored": 3}


def test_a_sabotaged_adapter_changes_nothing(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(attached: bool) -> tuple[Any, Any]:
        trainer = world.make(world.config())
        if attached:
            skyrl.attach(trainer)
        asyncio.run(trainer.train())
        return sorted(map(repr, WORLD.trained)), [
            (step, values["reward/avg_raw_reward"]) for step, values in WORLD.logged
        ]

    plain = run(False)
    assert run(False) == plain

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sabotage")

    for name in (
        "trajectories",
        "failed",
        "phase",
        "_copied",
        "_tensors",
        "_trained_row",
        "numbers",
    ):
        monkeypatch.setattr(hook, name, broken)
    for name in ("_made", "_known", "_now", "_trained", "_record", "_drop_groups"):
        monkeypatch.setattr(hook.SkyRLRecorder, name, broken)
    assert run(True) == plain
    assert len(Stored(own_store)) == 0


def test_what_the_trainer_hands_over_is_not_changed(own_store: Path) -> None:
    trainer = world.make(world.config())
    inner = trainer.generator.generate
    seen: list[tuple[Any, Any]] = []

    async def noting(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = await inner(batch, *args, **kwargs)
        seen.append((made, copy.deepcopy(made)))
        return made

    trainer.generator.generate = noting
    skyrl.attach(trainer)
    train_step = trainer.convert_to_training_input

    def compare(output: Any, uids: Any) -> Any:
        made, before = seen[-1]
        result = train_step(output, uids)
        for name in ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs"):
            assert made[name] == before[name]
        return result

    trainer.convert_to_training_input = compare
    asyncio.run(trainer.train())
    assert len(seen) == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cap_holds_per_step_and_split_and_keeps_groups_whole(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SAMPLE", "groups_per_step=1")
    found = train(own_store, is_async=is_async, eval_interval=1, tasks=4)
    groups = Counter(r.group for r in found)
    assert {groups[r.group] for r in found if r.split == "train"} == {3}
    assert {groups[r.group] for r in found if r.split == "eval"} == {2}
    per_step = Counter((r.split, r.step) for r in found if r.index == 0)
    assert set(per_step.values()) == {1}
    assert {step for split, step in per_step if split == "eval"} == {0, 1, 2}
    assert found.orphans == []  # nothing is said about what was left out


def test_off_means_untouched(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    trainer = world.make(world.config())
    generate = trainer.generator.generate
    skyrl.attach(trainer)
    assert trainer.generator.generate == generate
    assert "convert_to_training_input" not in vars(trainer)


def test_a_trainer_without_the_seams_says_so(own_store: Path) -> None:
    class Other: ...

    skyrl.attach(Other())
    texts = complaints()
    assert any("SkyRL 0.3.0: Other has no generator.generate" in text for text in texts)


def test_attaching_twice_records_once_and_times_are_the_generators_own(own_store: Path) -> None:
    trainer = world.make(world.config())
    inner = trainer.generator.generate
    times: list[float] = []

    async def noting(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = await inner(batch, *args, **kwargs)
        times.extend(made["trajectory_generation_times"])
        return made

    trainer.generator.generate = noting
    skyrl.attach(skyrl.attach(trainer))
    asyncio.run(trainer.train())
    found = Stored(own_store)
    assert len(found) == len(WORLD.episodes) == 18
    took = sorted((r.end or 0.0) - (r.start or 0.0) for r in found)
    assert took == pytest.approx(sorted(times), abs=1e-5)


def test_a_second_training_in_one_process_is_a_run_of_its_own(own_store: Path) -> None:
    for named in ({}, {}, {"project": "sweep", "run": "b"}):
        trainer = world.make(world.config())
        skyrl.attach(trainer, **named)
        asyncio.run(trainer.train())
    rollscope.finish()
    found = Stored(own_store)
    assert Counter(r.run for r in found) == {"first try": 18, "first try-2": 18, "b": 18}
    assert found.orphans == [] and {r.fate for r in found} == {"trained"}


@pytest.mark.parametrize(
    ("mode", "saved", "anew"),
    [("none", True, True), ("latest", False, True), ("latest", True, False), ("from_path", 0, 0)],
)
def test_a_training_that_is_resumed_goes_on_in_its_run(
    tmp_path: Path, mode: str, saved: bool, anew: bool
) -> None:
    if saved:
        (tmp_path / "latest_ckpt_global_step.txt").write_text("4")
    config = world.config()
    config.trainer.resume_mode, config.trainer.ckpt_path = mode, str(tmp_path)
    assert skyrl._begins_anew(config.trainer) == anew
