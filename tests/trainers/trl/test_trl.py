"""What TRL generates is what is stored: every rollout, its tokens, its rewards, byte for byte."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from stored import Stored, flat
from trl import RLOOTrainer
from world import TOK, Rewards, rows, trainer

from rollscope import capture
from rollscope.adapters import trl as adapter
from rollscope.adapters.trl import hook
from rollscope.model import Rollout


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")


def train(tmp_path: Path, **changes: Any) -> tuple[Any, Rewards]:
    rewards = Rewards()
    made = adapter.attach(trainer(tmp_path, rewards, **changes))
    made.train()
    return made, rewards


def in_order(stored: Stored, split: str = "train") -> list[Rollout]:
    """In the order of generation, which the keys tell."""

    def place(rollout: Rollout) -> tuple[int, ...]:
        return tuple(int(part) for part in str(rollout.key).split("/")[-3:])

    return sorted((r for r in stored if r.split == split), key=place)


def compare(stored: list[Rollout], made: Any, rewards: Rewards, weights: Any = (1.0, 0.5)) -> None:
    """Every rollout against the records of the model and of the reward functions."""
    assert len(stored) == len(rewards.notes) == len(made.model.notes) > 0
    for rollout, note, (prompt, wrote) in zip(stored, rewards.notes, made.model.notes, strict=True):
        assert flat(rollout) == prompt + wrote
        assert wrote == note["ids"]
        text = "".join(
            m.meta.get("before", "") + str(m.content) + m.meta.get("after", "")
            for m in rollout.messages
        )
        assert text == TOK.decode(prompt + wrote)
        assert flat(rollout, "mask") == [0] * len(prompt) + [1] * len(wrote)
        parts = {k: note[k] for k in ("variety", "vowels") if note[k] is not None}
        assert rollout.rewards == parts
        assert rollout.reward == sum(
            parts[k] * w for k, w in zip(("variety", "vowels"), weights, strict=True) if k in parts
        )
        assert rollout.truncated == (wrote[-1] not in (TOK.eos_token_id, TOK.pad_token_id))
        assert str(rollout.task) == str(note["index"]) and rollout.reference == note["answer"]
        assert rollout.meta["lang"] == "en" and rollout.meta["length"] == len(wrote)
        assert rollout.policy_version == note["updates"]
        assert rollout.start is not None and rollout.end is not None
        assert rollout.end >= rollout.start


def test_every_generation_of_every_step_is_stored(own_store: Path, tmp_path: Path) -> None:
    made, rewards = train(tmp_path, max_steps=6, logging_steps=3)
    stored = Stored(own_store)
    rollouts = in_order(stored)
    assert len(rollouts) == 24
    compare(rollouts, made, rewards)
    assert [r.step for r in rollouts] == [step for step in range(1, 7) for _ in range(4)]
    assert stored.projects == {("letters", "my-run")}
    assert stored.orphans == []


def test_messages_are_the_conversation(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path)
    for rollout in Stored(own_store):
        system, user, assistant = rollout.messages
        assert (system.role, system.content) == ("system", "Be brief.")
        assert (user.role, str(user.content)[:4]) == ("user", "say ")
        assert assistant.role == "assistant" and assistant.sampled


def test_plain_text_prompts_are_not_taken_for_a_conversation(
    own_store: Path, tmp_path: Path
) -> None:
    made, rewards = train(tmp_path, train_dataset=rows(chat=False))
    rollouts = in_order(Stored(own_store))
    compare(rollouts, made, rewards)
    assert {tuple(m.role for m in r.messages) for r in rollouts} == {("unknown", "assistant")}


def test_siblings_share_a_group_and_a_prompt(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path, per_device_train_batch_size=8, max_steps=3)
    groups: dict[str, list[Rollout]] = {}
    for rollout in Stored(own_store):
        groups.setdefault(str(rollout.group), []).append(rollout)
    assert len(groups) == 6
    for siblings in groups.values():
        assert sorted(r.index for r in siblings if r.index is not None) == [0, 1, 2, 3]
        assert len({r.task for r in siblings}) == 1


def test_advantages_are_those_of_the_group(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path, max_steps=4)
    groups: dict[str, list[Rollout]] = {}
    for rollout in Stored(own_store):
        groups.setdefault(str(rollout.group), []).append(rollout)
    for siblings in groups.values():
        rewards = torch.tensor([float(r.reward or 0) for r in siblings])
        wanted = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        found = torch.tensor([float(r.advantage or 0) for r in siblings])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_rollouts_are_trained_when_their_step_is_done(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path, max_steps=3, gradient_accumulation_steps=2)
    rollouts = in_order(Stored(own_store))
    assert len(rollouts) == 24
    assert {r.fate for r in rollouts} == {"trained"}
    assert all(r.trained_step == r.step for r in rollouts)


def test_one_generation_for_several_steps_says_trained_but_not_when(
    own_store: Path, tmp_path: Path
) -> None:
    train(tmp_path, max_steps=3, steps_per_generation=2, logging_steps=10)
    by_step: dict[int | None, list[Rollout]] = {}
    for rollout in Stored(own_store):
        by_step.setdefault(rollout.step, []).append(rollout)
    assert {step: len(found) for step, found in by_step.items()} == {1: 8, 3: 8}
    assert {(r.fate, r.trained_step) for r in by_step[1]} == {("trained", None)}
    assert {r.fate for r in by_step[3]} == {"scored"}  # training ended in the middle of it


def test_masked_completions_say_so(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path, mask_truncated_completions=True, max_steps=4)
    rollouts = list(Stored(own_store))
    for rollout in rollouts:
        assert rollout.fate == ("masked" if rollout.truncated else "trained")
        assert any(v for v in flat(rollout, "mask")) != rollout.truncated
    assert {r.truncated for r in rollouts} == {True, False}


def test_evaluations_are_stored_with_the_step_of_the_weights(
    own_store: Path, tmp_path: Path
) -> None:
    made, rewards = train(
        tmp_path,
        eval_dataset={"short": rows(2), "long": rows(4)},
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
        num_generations_eval=2,
        max_steps=4,
    )
    stored = Stored(own_store)
    rollouts = [r for r in stored if r.split == "eval"]
    counts: dict[tuple[Any, ...], int] = {}
    for rollout in rollouts:
        place = (rollout.step, rollout.dataset)
        counts[place] = counts.get(place, 0) + 1
        assert rollout.fate == "scored" and rollout.policy_version == rollout.step
    assert counts == {(2, "short"): 4, (2, "long"): 8, (4, "short"): 4, (4, "long"): 8}
    noted = sorted(str(n["ids"]) for n in rewards.notes)
    assert sorted(str(flat(r)[-len(_wrote(r)) :]) for r in stored) == noted
    assert len(made.model.notes) == len(list(stored))


def _wrote(rollout: Rollout) -> list[int]:
    return [t for t, m in zip(flat(rollout), flat(rollout, "mask"), strict=True) if m]


def test_the_trainers_own_numbers_stand_at_their_step(own_store: Path, tmp_path: Path) -> None:
    made, _ = train(tmp_path, max_steps=3)
    metrics = Stored(own_store).metrics
    for entry in made.state.log_history:
        for name, value in entry.items():
            if name not in ("step", "total_flos"):  # which a callback of theirs takes out
                assert metrics[entry["step"]][name] == pytest.approx(value)


def test_rloo_is_stored_too(own_store: Path, tmp_path: Path) -> None:
    made, rewards = train(tmp_path, kind=RLOOTrainer, max_steps=3)
    rollouts = in_order(Stored(own_store))
    compare(rollouts, made, rewards)
    assert all(r.advantage is not None and r.fate == "trained" for r in rollouts)


def test_what_tools_wrote_is_told_apart(own_store: Path, tmp_path: Path) -> None:
    """Through TRL's `rollout_func`, which may return log probabilities and a mask."""
    noted = []

    def play(prompts: list[Any], _: Any) -> dict[str, Any]:
        shown, wrote, masks, logps = [], [], [], []
        for i, prompt in enumerate(prompts):
            ids = TOK.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]
            call = TOK.encode(f"<tool_call>add({i})</tool_call><|im_end|>")
            result = TOK.encode(f"\n<|im_start|>tool\n{i} ✓<|im_end|>\n<|im_start|>assistant\n")
            answer = TOK.encode(f"it is {i} 😀<|im_end|>")
            shown.append(ids)
            wrote.append(call + result + answer)
            masks.append([1] * len(call) + [0] * len(result) + [1] * len(answer))
            logps.append([-0.25 * m * (k % 7) for k, m in enumerate(masks[-1])])
            noted.append((shown[-1], wrote[-1], masks[-1], logps[-1], i))
        return {
            "prompt_ids": shown,
            "completion_ids": wrote,
            "logprobs": logps,
            "env_mask": masks,
        }

    train(tmp_path, rollout_func=play, max_completion_length=200)
    rollouts = in_order(Stored(own_store))
    assert len(rollouts) == len(noted) == 8
    for rollout, (prompt, wrote, mask, logps, i) in zip(rollouts, noted, strict=True):
        assert flat(rollout) == prompt + wrote
        assert flat(rollout, "mask") == [0] * len(prompt) + mask
        wanted = [lp if m else None for lp, m in zip(logps, mask, strict=True)]
        assert flat(rollout, "logprob") == [None] * len(prompt) + wanted
        roles = [m.role for m in rollout.messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant"]
        assert rollout.messages[3].content == f"{i} ✓"
        assert rollout.messages[4].content == f"it is {i} 😀"
        assert [m.sampled for m in rollout.messages] == [False, False, True, False, True]
        assert rollout.sampling["logprobs"] == "processed"


def test_a_reward_that_raises_is_recorded_and_raises_on(own_store: Path, tmp_path: Path) -> None:
    def broken(completions: Any, **_: Any) -> list[float]:
        raise ZeroDivisionError("no such score")

    made = adapter.attach(trainer(tmp_path, Rewards(), reward_funcs=[broken], reward_weights=[1.0]))
    with pytest.raises(ZeroDivisionError, match="no such score"):
        made.train()
    rollouts = list(Stored(own_store))
    assert len(rollouts) == 4
    for rollout in rollouts:
        assert rollout.fate == "failed" and rollout.reward is None
        assert rollout.error is not None
        assert (rollout.error.kind, rollout.error.type) == ("grader", "ZeroDivisionError")
        assert rollout.messages[1].content is not None


# -- it only looks ---------------------------------------------------------------------


def end_state(made: Any) -> list[Any]:
    weights = {name: w.clone() for name, w in made.model.state_dict().items()}
    chance = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())
    optimizer = [dict(state) for state in made.optimizer.state_dict()["state"].values()]
    return [weights, chance, optimizer, made.model.notes]


def assert_same(one: list[Any], other: list[Any]) -> None:
    for name, weight in one[0].items():
        assert torch.equal(weight, other[0][name]), name
    assert torch.equal(one[1][0], other[1][0]) and one[1][1:] == other[1][1:]
    for mine, theirs in zip(one[2], other[2], strict=True):
        assert all(torch.equal(mine[k], theirs[k]) for k in mine)
    assert one[3] == other[3]


def run_once(tmp_path: Path, attached: bool) -> tuple[list[Any], Rewards]:
    rewards = Rewards()
    made = trainer(
        tmp_path,
        rewards,
        max_steps=5,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        eval_dataset=rows(2),
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
    )
    if attached:
        adapter.attach(made)
    made.train()
    return end_state(made), rewards


def test_training_ends_bit_for_bit_the_same_with_and_without(
    own_store: Path, tmp_path: Path
) -> None:
    without, seen_without = run_once(tmp_path / "without", attached=False)
    assert not own_store.exists()
    with_it, seen_with = run_once(tmp_path / "with", attached=True)
    assert_same(without, with_it)
    assert seen_without.given == seen_with.given
    assert len(list(Stored(own_store))) == len(with_it[3]) > 0


@pytest.mark.parametrize("broken", ["convert", "log", "annotate", "metrics", "join"])
def test_a_broken_adapter_leaves_training_as_it_is(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLSCOPE_STRICT")
    without, _ = run_once(tmp_path / "without", attached=False)

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    where: Any = {"convert": hook, "join": capture}.get(broken, capture.Run)
    monkeypatch.setattr(where, broken, fail)
    with_it, _ = run_once(tmp_path / "with", attached=True)
    assert_same(without, with_it)


def test_what_goes_through_is_the_trainers_own(tmp_path: Path) -> None:
    rewards = Rewards()
    made = trainer(tmp_path, rewards)
    original = made._generate_and_score_completions
    returned = []

    def generate(inputs: Any) -> Any:
        before = copy.deepcopy(inputs)
        output = original(inputs)
        returned.append((inputs, before, output, {k: v.clone() for k, v in output.items()}))
        return output

    made._generate_and_score_completions = generate
    adapter.attach(made)
    seen = []
    wrapped = made._generate_and_score_completions
    made._generate_and_score_completions = lambda inputs: seen.append(wrapped(inputs)) or seen[-1]
    made.train()
    for (inputs, before, output, clone), got in zip(returned, seen, strict=True):
        assert inputs == before
        assert got is output and output.keys() == clone.keys()
        assert all(torch.equal(output[k], clone[k]) for k in clone)


def test_off_means_the_methods_are_the_originals(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    made = trainer(tmp_path, Rewards())
    callbacks = list(made.callback_handler.callbacks)
    adapter.attach(made)
    assert "_calculate_rewards" not in vars(made)
    assert "_generate_and_score_completions" not in vars(made)
    assert made.callback_handler.callbacks == callbacks
    assert not own_store.exists()


def test_attaching_twice_records_once(own_store: Path, tmp_path: Path) -> None:
    made = trainer(tmp_path, Rewards())
    adapter.attach(adapter.attach(made))
    made.train()
    assert len(list(Stored(own_store))) == len(made.model.notes)


def test_a_trainer_without_the_seam_is_told_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Other:
        pass

    with caplog.at_level("WARNING", logger="rollscope"):
        adapter.attach(Other())
    assert "Other has no _calculate_rewards" in caplog.text and "trl 1." in caplog.text


# -- unmatched, never guessed ----------------------------------------------------------


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


# -- TRL's own files -------------------------------------------------------------------


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
        assert rollout.messages[-1].content == note["said"][0]["content"]
        assert rollout.messages[0].content == "Be brief."
        assert rollout.meta["length"] == len(note["ids"])
        assert rollout.advantage is not None
    assert [r.index for r in rollouts] == [0, 1, 2, 3] * 3
    assert len({r.group for r in rollouts}) == 3


def test_other_parquet_files_are_not_taken_for_trls(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "completions_00001.parquet"
    duckdb.execute(f"COPY (SELECT 1 AS step) TO '{path}' (FORMAT parquet)")
    assert not adapter.recognise(path)
    assert not adapter.recognise(tmp_path / "nothing")
