"""What TRL generates is what is stored: every rollout, its tokens, its rewards, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checked import named_faults, silent
from stored import Stored, flat
from trl import RLOOTrainer
from world import PROJECT, TOK, VERSION, Rewards, rows, since, trainer

from rollscope.adapters import trl as adapter
from rollscope.model import Rollout

pytestmark = pytest.mark.usefixtures("strict")


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
        assert rollout.meta["lang"] == "en"
        assert rollout.meta.get("length") == (len(wrote) if VERSION >= (1, 0) else None)
        assert rollout.policy_version == note["updates"]
        assert rollout.start is not None and rollout.end is not None
        assert rollout.end >= rollout.start


LOOKED = {
    "advantage.mean",
    "advantage.order",
    "advantage.sign",
    "fate.contradiction",
    "fate.unfinished",
    "group.size",
    "group.slot",
    "mask.empty",
    "mask.foreign",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_every_generation_of_every_step_is_stored(own_store: Path, tmp_path: Path) -> None:
    made, rewards = train(tmp_path, max_steps=6, logging_steps=3)
    stored = Stored(own_store)
    rollouts = in_order(stored)
    assert len(rollouts) == 24
    compare(rollouts, made, rewards)
    assert [r.step for r in rollouts] == [step for step in range(1, 7) for _ in range(4)]
    assert stored.projects == {(PROJECT, "my-run")}
    assert stored.orphans == []
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


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
    own: dict[str, Any] = {"num_generations_eval": 2} if VERSION >= (0, 26) else {}
    size = own.get("num_generations_eval", 4)
    made, rewards = train(
        tmp_path,
        eval_dataset={"short": rows(2), "long": rows(4)},
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
        max_steps=4,
        **own,
    )
    stored = Stored(own_store)
    rollouts = [r for r in stored if r.split == "eval"]
    counts: dict[tuple[Any, ...], int] = {}
    for rollout in rollouts:
        place = (rollout.step, rollout.dataset)
        counts[place] = counts.get(place, 0) + 1
        assert rollout.fate == "scored" and rollout.policy_version == rollout.step
    wanted = {"short": 2 * size, "long": 4 * size}
    assert counts == {(step, name): n for step in (2, 4) for name, n in wanted.items()}
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


@since("0.22", "this RLOOTrainer")
def test_rloo_is_stored_too(own_store: Path, tmp_path: Path) -> None:
    made, rewards = train(tmp_path, kind=RLOOTrainer, max_steps=3)
    rollouts = in_order(Stored(own_store))
    compare(rollouts, made, rewards)
    assert all(r.advantage is not None and r.fate == "trained" for r in rollouts)


@since("0.28", "env_mask of rollout_func")
@pytest.mark.parametrize("is_cut", [False, True])
def test_what_tools_wrote_is_told_apart(own_store: Path, tmp_path: Path, is_cut: bool) -> None:
    """Through TRL's `rollout_func`, which may return log probabilities and a mask.

    If a completion was cut off and is masked, TRL's own mask does not tell who wrote what.
    """
    noted = []

    def play(prompts: list[Any], _: Any) -> dict[str, Any]:
        shown, wrote, masks, logps = [], [], [], []
        for i, prompt in enumerate(prompts):
            ids = TOK.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]
            call = TOK.encode(f"<tool_call>add({i})</tool_call><|im_end|>")
            result = TOK.encode(f"\n<|im_start|>tool\n{i} ✓<|im_end|>\n<|im_start|>assistant\n")
            answer = TOK.encode(f"it is {i} 😀" + ("" if is_cut else "<|im_end|>"))
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

    settings = {"max_completion_length": 200, "mask_truncated_completions": is_cut}
    train(tmp_path, rollout_func=play, **settings)
    rollouts = in_order(Stored(own_store))
    assert len(rollouts) == len(noted) == 8
    for rollout, (prompt, wrote, mask, logps, i) in zip(rollouts, noted, strict=True):
        assert flat(rollout) == prompt + wrote
        learned = [0] * len(wrote) if is_cut else mask
        assert flat(rollout, "mask") == [0] * len(prompt) + learned
        assert rollout.fate == ("masked" if is_cut else "trained")
        wanted = [None if is_cut or not m else lp for lp, m in zip(logps, mask, strict=True)]
        assert flat(rollout, "logprob") == [None] * len(prompt) + wanted
        roles = [m.role for m in rollout.messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant"]
        assert rollout.messages[3].content == f"{i} ✓"
        assert rollout.messages[4].content == f"it is {i} 😀"
        assert [m.sampled for m in rollout.messages] == [False, False, True, False, True]
        assert rollout.sampling["logprobs"] == "processed"
