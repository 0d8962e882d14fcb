"""Rows are known by their tokens, never by their place: what goes into the loss is `trained`."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
import world
from stored import Stored, complaints, flat
from trl import GRPOTrainer
from world import TOK, Rewards, rows, since, trainer

from rollscope.adapters import trl as adapter

pytestmark = pytest.mark.usefixtures("strict")

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""A row as a trainer has it: what the model was shown, and what it wrote."""


def real(ids: Any, mask: Any) -> tuple[int, ...]:
    return tuple(t for t, m in zip(ids.tolist(), mask.tolist(), strict=True) if m)


def rows_of(batch: Any) -> list[Row]:
    """The rows of a batch of TRL's, without padding."""
    return [
        (real(p, pm), real(c, cm))
        for p, pm, c, cm in zip(
            *(
                batch[f"{kind}_{what}"]
                for kind in ("prompt", "completion")
                for what in ("ids", "mask")
            ),
            strict=True,
        )
    ]


class Notes:
    """Notes which rows went into the loss at which step, and with which advantage."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.learned: dict[Row, list[int]] = defaultdict(list)
        self.advantages: dict[Row, list[float]] = defaultdict(list)

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        if self.model.training:
            for row, advantage in zip(rows_of(inputs), inputs["advantages"].tolist(), strict=True):
                self.learned[row].append(self.state.global_step + 1)
                self.advantages[row].append(pytest.approx(advantage))
        return super()._compute_loss(model, inputs)


class Noting(Notes, GRPOTrainer):
    pass


def train(tmp_path: Path, kind: type = Noting, **changes: Any) -> Any:
    made = adapter.attach(trainer(tmp_path, Rewards(), kind, **changes))
    made.train()
    return made


def compare(stored: Stored, made: Any) -> None:
    """Each rollout has its own prompt, and the fate and advantage of its own row in the loss."""
    shown = [(tuple(prompt), tuple(wrote)) for prompt, wrote in made.model.notes]
    assert Counter(tuple(flat(r)) for r in stored) == Counter(p + w for p, w in shown)
    by_tokens = {prompt + wrote: (prompt, wrote) for prompt, wrote in shown}
    for rollout in stored:
        row = by_tokens[tuple(flat(rollout))]
        steps = sorted(set(made.learned.get(row, ())))
        assert rollout.fate == ("trained" if steps else "scored"), row
        assert rollout.trained_step == (steps[0] if steps else None)
        assert rollout.meta.get("trained_steps") == (steps if len(steps) > 1 else None)
        if steps:
            assert rollout.advantage in made.advantages[row]
            assert "mask" in rollout.messages[-1].tokens.streams  # type: ignore[union-attr]


def test_steps_of_one_generation(own_store: Path, tmp_path: Path) -> None:
    """TRL shuffles the rows of a generation before it slices them. The end cuts one off."""
    made = train(tmp_path, max_steps=3, steps_per_generation=2, logging_steps=10)
    stored = Stored(own_store)
    compare(stored, made)
    assert Counter((r.step, r.trained_step) for r in stored) == {
        (1, 1): 4, (1, 2): 4, (3, 3): 4, (3, None): 4,
    }  # fmt: skip


def test_rows_that_are_learned_from_again(own_store: Path, tmp_path: Path) -> None:
    made = train(tmp_path, max_steps=5, num_iterations=2, steps_per_generation=2)
    stored = Stored(own_store)
    compare(stored, made)
    found = Counter((r.step, r.trained_step, str(r.meta.get("trained_steps"))) for r in stored)
    assert found == {
        (1, 1, "[1, 3]"): 4, (1, 2, "[2, 4]"): 4, (5, 5, "None"): 4, (5, None, "None"): 4,
    }  # fmt: skip


def taking(batch: Any, places: list[int]) -> dict[str, Any]:
    """Other rows of a batch."""
    n = len(batch["advantages"])
    return {
        name: value[places]
        if isinstance(value, torch.Tensor) and value.shape[:1] == (n,)
        else value
        for name, value in batch.items()
    }


class Repeating(Noting):
    """Learns only from the first and the last row of a generation, several times each."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        n = len(output["advantages"])
        return taking(output, [0, n - 1] * (n // 2))


class Reversing(Noting):
    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        return taking(output, list(range(len(output["advantages"])))[::-1])


class Filtering(Noting):
    """Hands over fewer rows than were generated: the better half."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        best = output["advantages"].argsort(descending=True)[: len(output["advantages"]) // 2]
        return taking(output, sorted(best.tolist()))


class Replaying(Noting):
    """As TRL's replay-buffer trainer did: half of the rows come from the generation before."""

    before: Any = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        before, self.before = self.before, output
        if before is None:
            return output
        n = len(output["advantages"])
        mixed = dict(output)
        for kind, left in (("prompt", True), ("completion", False)):
            width = max(b[f"{kind}_ids"].shape[1] for b in (before, output))
            for name, filler in ((f"{kind}_ids", TOK.pad_token_id), (f"{kind}_mask", 0)):
                parts = []
                for batch, rows_ in ((before, slice(0, n // 2)), (output, slice(n // 2, n))):
                    part = batch[name][rows_]
                    more = width - part.shape[1]
                    padding = (more, 0) if left else (0, more)
                    parts.append(torch.nn.functional.pad(part, padding, value=filler))
                mixed[name] = torch.cat(parts)
        mixed["advantages"] = torch.cat(
            [before["advantages"][: n // 2], output["advantages"][n // 2 :]]
        )
        return mixed


@since("0.24", "a function that tells the prompts of rows that are not handed on")
@pytest.mark.parametrize("kind", [Repeating, Reversing, Filtering, Replaying])
def test_rows_that_a_subclass_moves(own_store: Path, tmp_path: Path, kind: type) -> None:
    made = train(tmp_path, kind, max_steps=4, per_device_train_batch_size=4, steps_per_generation=2)
    stored = Stored(own_store)
    compare(stored, made)
    assert {r.fate for r in stored} == ({"trained"} if kind is Reversing else {"trained", "scored"})


def test_trls_own_replay_buffer(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "trl.experimental.grpo_with_replay_buffer"
    found = pytest.importorskip(module, reason="TRL has it from 0.24 to 1.13", exc_type=ImportError)

    class Replays(Notes, found.GRPOWithReplayBufferTrainer):  # type: ignore[misc, name-defined]
        pass

    def reward(completion_ids: Any, answer: Any, **_: Any) -> list[float]:
        """Nothing to learn from half of the prompts: their rows are replaced."""
        pairs = zip(completion_ids, answer, strict=True)
        return [0.0 if letter in "abcd" else float(sum(ids)) for ids, letter in pairs]

    rewards = {"reward_funcs": [reward], "reward_weights": [1.0]}
    monkeypatch.setattr(world, "GRPOConfig", found.GRPOWithReplayBufferConfig)
    made = train(tmp_path, Replays, max_steps=8, replay_buffer_size=8, **rewards)
    stored = Stored(own_store)
    compare(stored, made)


class Making(Noting):
    """Learns from rows that nobody generated."""

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = dict(super()._prepare_inputs(generation_batch))
        inputs["completion_ids"] = inputs["completion_ids"].flip(1)
        return inputs


def test_rows_that_no_rollout_has_are_counted(own_store: Path, tmp_path: Path) -> None:
    train(tmp_path, Making, max_steps=1, max_completion_length=7)
    assert {r.fate for r in Stored(own_store)} == {"scored"}
    assert any("4 rows were learned from that no rollout has" in text for text in complaints())


def test_two_reward_functions_of_one_name(own_store: Path, tmp_path: Path) -> None:
    def scored(by: int) -> Any:
        def reward(completion_ids: Any, **_: Any) -> list[float]:
            return [float(by * len(ids)) for ids in completion_ids]

        return reward

    train(
        tmp_path, reward_funcs=[scored(1), scored(10), scored(100)], reward_weights=[1.0, 2.0, 0.0]
    )
    for rollout in Stored(own_store):
        length = sum(v or 0 for v in flat(rollout, "mask"))
        assert rollout.rewards == {
            "reward": length, "reward#1": 10 * length, "reward#2": 100 * length,
        }  # fmt: skip
        assert rollout.reward == 21 * length


@since("0.29", "environment_factory")
def test_tasks_of_environments_are_the_rows_of_the_dataset(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is a placeholder there; the environment says what is asked."""
    content = {"type": "string", "x-regex": r"\A(.*?)(?:<\|im_end\|>|\Z)"}
    said = {"type": "object", "properties": {"role": {"const": "assistant"}, "content": content}}
    monkeypatch.setattr(TOK, "response_schema", said, raising=False)

    class Riddle:
        def reset(self, answer: str, **_: Any) -> str:
            return f"guess {answer}"

        def look(self) -> str:
            """Look.

            Returns:
                What is there.
            """
            return "nothing"

    dataset = rows(6).remove_columns(["index", "lang"])
    dataset = dataset.map(lambda _: {"prompt": [{"role": "user", "content": ""}]})
    made = adapter.attach(
        trainer(tmp_path, Rewards(), train_dataset=dataset, environment_factory=Riddle, max_steps=6)
    )
    made.train()
    by_task: dict[Any, set[str]] = defaultdict(set)
    for rollout in Stored(own_store):
        by_task[rollout.task].add(str(rollout.messages[0].content))
    assert len(by_task) == 6
    assert sorted(p for prompts in by_task.values() for p in prompts) == [
        f"guess {c}" for c in "abcdef"
    ]
