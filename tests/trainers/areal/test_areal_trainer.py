"""Advantages, fates and metrics of AReaL's real actor, against its own tensors."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import areal_world
import pytest
import swanlab
import torch
from areal.api import FinetuneSpec
from areal.api.cli_args import BaseExperimentConfig, PPOActorConfig, StatsLoggerConfig
from areal.trainer.ppo.actor import PPOActor
from areal.utils.stats_logger import StatsLogger
from areal_world import TOK, TRACED, Rollouts, answer_of, branch
from stored import Stored, complaints, flat, written

from rollscope import capture
from rollscope.adapters import areal
from rollscope.adapters.areal import hook, trainer


def make_trainer(optimise: Callable[[Any], None] = lambda batch: None) -> Any:
    config = PPOActorConfig(
        experiment_name="puzzles",
        trial_name="trial 1",
        backend="fsdp:d1",
        kl_ctl=0.0,
        path="x",
        reward_scaling=2.0,
        reward_bias=-0.5,
    )
    config.use_decoupled_loss = False
    config.recompute_logprob = False
    actor = PPOActor(config, None)
    actor.ppo_update = optimise
    settings = StatsLoggerConfig(
        experiment_name="puzzles",
        trial_name="trial 1",
        fileroot=str(Path(os.environ["ROLLSCOPE_DIR"]).parent),
    )
    whole = BaseExperimentConfig(
        experiment_name="puzzles", trial_name="trial 1", stats_logger=settings
    )
    spec = FinetuneSpec(total_train_epochs=1, dataset_size=8, train_batch_size=2)
    stats = NotingStats(whole, spec)
    return SimpleNamespace(
        config=whole, actor=actor, stats_logger=stats, committed=stats.committed, train=train
    )


def train(
    workflow: Any = None,
    eval_workflow: Any = None,
    workflow_kwargs: Any = None,
    eval_workflow_kwargs: Any = None,
    dynamic_filter_fn: Any = None,
) -> Any:
    """With the parameters of AReaL's; returns what AReaL gets."""
    return workflow, workflow_kwargs, eval_workflow, eval_workflow_kwargs, dynamic_filter_fn


class NotingStats(StatsLogger):
    """AReaL's own logger, with every service off; what it is given is noted."""

    def __init__(self, config: Any, spec: Any) -> None:
        with contextlib.suppress(RuntimeError):  # swanlab has one run a process
            swanlab.finish()
        super().__init__(config, spec)
        self.committed: list[Any] = []

    def commit(self, epoch: int, step: int, global_step: int, data: Any) -> None:
        self.committed.append((global_step, data))
        super().commit(epoch, step, global_step, data)


def step(made: Any, batch: list[dict[str, Any]], global_step: int) -> list[dict[str, Any]]:
    """One step, as AReaL's PPOTrainer.train makes it."""
    result: list[dict[str, Any]] = made.actor.compute_advantages(batch)
    made.actor.ppo_update(result)
    made.stats_logger.commit(0, global_step, global_step, {"loss": 0.5, "n__count": 3})
    return result


def expected_advantages(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> dict[tuple[int, ...], list[Any]]:
    """By a row's tokens: the advantage of each token, from the trainer's shifted tensors."""
    found = {}
    for raw, done in zip(before, after, strict=True):
        for i in range(len(raw["input_ids"])):
            length = int(raw["attention_mask"][i].sum())
            mask = raw["loss_mask"][i, :length].tolist()
            shifted = [None, *done["advantages"][i, : length - 1].tolist()]
            found[tuple(raw["input_ids"][i, :length].tolist())] = [
                a if m else None for a, m in zip(shifted, mask, strict=True)
            ]
    return found


def test_advantages_find_their_tokens(rollouts: Rollouts, own_store: Path) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    before = copy.deepcopy(batch)
    made = areal.attach(make_trainer())
    after = step(made, batch, global_step=7)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    assert len(found) == len(expected) == 6
    for rollout in found:
        stream = flat(rollout, "advantage")
        assert stream == expected[tuple(flat(rollout))]
        values = [v for v in stream if v is not None]
        assert len(values) == len(answer_of(rollout)["ids"])
        assert rollout.advantage == pytest.approx(values[0])
        assert (rollout.fate, rollout.trained_step) == ("trained", 7)
        assert rollout.rewards["normalised"] == (0.25 * rollout.index - 0.5) * 2
        assert rollout.reward == 0.25 * rollout.index
    assert found.metrics == {7: {"loss": 0.5}}
    assert made.committed == [(7, {"loss": 0.5, "n__count": 3})]
    for raw, old in zip(batch, before, strict=True):
        assert all(torch.equal(raw[name], old[name]) for name in old)


def test_rows_of_an_agent_are_put_together_again(rollouts: Rollouts, own_store: Path) -> None:
    made = areal.attach(make_trainer())
    batch = rollouts.run(TRACED, {"inner": "areal_world.InProcess"}, asks="tool?", group=2)
    before = copy.deepcopy(batch)
    after = step(made, batch, global_step=3)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    assert len(expected) == 2 * len(found) == 8
    for rollout in found:
        assert (rollout.fate, rollout.trained_step) == ("trained", 3)
        for message in rollout.messages:
            if message.sampled and message.tokens is not None:
                row = expected[tuple(branch(rollout, message))]
                assert message.tokens.advantage == row[-len(message.tokens.ids) :]


def test_a_trainer_in_another_process_finds_rows_by_their_digest(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    before = copy.deepcopy(batch)
    monkeypatch.setattr(trainer, "rows", hook.MadeRows())  # it has seen no episode
    after = step(areal.attach(make_trainer()), batch, global_step=2)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    for rollout in found:
        assert flat(rollout, "advantage") == expected[tuple(flat(rollout))]
        assert rollout.trained_step == 2


def test_an_agents_rows_in_another_process_are_told_never_guessed(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.InProcess"}, asks="tool?", group=2)
    monkeypatch.setattr(trainer, "rows", hook.MadeRows())
    step(areal.attach(make_trainer()), batch, global_step=2)
    found = Stored(own_store)
    assert {r.advantage for r in found} == {None}
    assert len({rollout for rollout, _ in found.orphans}) == 8


def test_a_batch_that_was_not_trained_on_is_not_called_trained(
    rollouts: Rollouts, own_store: Path
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})

    def broken(batch: Any) -> None:
        raise RuntimeError("out of memory")

    made = areal.attach(make_trainer(broken))
    with pytest.raises(RuntimeError, match="out of memory"):
        step(made, batch, global_step=7)
    assert {r.fate for r in Stored(own_store)} == {"scored"}


def test_misaligned_batches_are_unmatched_never_guessed(
    rollouts: Rollouts, own_store: Path
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    made = make_trainer()
    compute = made.actor.compute_advantages
    made.actor.compute_advantages = lambda data: compute(data)[:-1]
    areal.attach(made)
    step(made, batch, global_step=1)
    # Rows that no episode made: one token differs.
    foreign = [{k: v.clone() for k, v in batch[0].items()}]
    foreign[0]["input_ids"][:, 0] = 5
    made.actor.compute_advantages = compute
    made._rollscope = None
    areal.attach(made)
    step(made, foreign, global_step=2)
    found = Stored(own_store)
    assert {r.advantage for r in found} == {None}
    assert {r.trained_step for r in found} == {None}
    assert len({rollout for rollout, _ in found.orphans}) == 3
    texts = complaints()
    assert any("2 groups went in, 1 came out" in text for text in texts)


def test_lists_of_the_wrong_length_are_missing_and_told() -> None:
    ids = torch.tensor([TOK.encode("ab"), TOK.encode("cd")])
    result = {
        "input_ids": ids,
        "loss_mask": torch.tensor([[0, 1], [0, 1]]),
        "attention_mask": torch.ones_like(ids),
        "rewards": torch.tensor([1.0]),
        "messages": ["[]"],
    }
    problems: list[str] = []
    found = areal.convert(result, tokenizer=TOK, problems=problems)
    assert [r.reward for r in found] == [None, None]
    assert [written(r) for r in found] == [["b"], ["d"]]
    assert any("messages" in text for text in problems)


def test_a_sabotaged_adapter_changes_nothing(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = rollouts.calls
    plain = rollouts.run("areal_world.OneTurn", {}, tasks=1)

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sabotage")

    for name in ("episodes", "join"):
        monkeypatch.setattr(hook, name, broken)
    for name in ("__init__", "end", "_record"):
        monkeypatch.setattr(hook.EpisodeWatch, name, broken)
    for name in ("rows_of", "digest", "numbers", "_copied", "_local"):
        monkeypatch.setattr(trainer, name, broken)
    rollouts.calls = began
    traced = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"}, tasks=1)
    assert all(torch.equal(plain[0][name], traced[0][name]) for name in plain[0])
    bare, watched = make_trainer(), make_trainer()
    assert capture.join("puzzles", "trial 1", adapter="areal", asked=True) is not None
    areal.attach(watched)
    assert isinstance(watched._rollscope, trainer.TrainerRecorder)
    without = step(bare, copy.deepcopy(plain), 1)
    with_it = step(watched, copy.deepcopy(plain), 1)
    assert all(torch.equal(without[0][name], with_it[0][name]) for name in without[0])
    assert watched.committed == bare.committed


def test_off_means_untouched(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    made = make_trainer()
    compute = made.actor.compute_advantages
    areal.attach(made)
    assert made.actor.compute_advantages == compute
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn"}, tasks=1)
    assert not own_store.exists()


def test_an_agent_given_as_a_workflow_is_refused_with_what_to_type() -> None:
    with pytest.raises(TypeError, match=r"TracedAgent', or mark its class with @rollscope"):
        areal.TracedWorkflow(inner="areal_world.ThroughProxy")


def test_the_line_without_a_workflow_says_what_to_type() -> None:
    with pytest.raises(TypeError, match=r"'inner': 'areal.workflow.rlvr.RLVRWorkflow'"):
        areal.TracedWorkflow(reward_fn="areal_world.reward_fn")
    with pytest.raises(TypeError, match=r"areal.attach\(trainer\) before trainer.train"):
        areal.TracedAgent()


def test_attach_records_what_train_is_given(own_store: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AREAL_SPMD_MODE", "0")
    made = areal.attach(make_trainer())
    first, first_kwargs, second, second_kwargs, accept = made.train(
        "areal_world.OneTurn",
        areal_world.Unmarked,
        {"behaviour": "tool"},
        dynamic_filter_fn="areal_engines.accept",
    )
    assert (first, second) == (TRACED, "rollscope.adapters.areal.TracedAgent")
    settings = {"settings": first_kwargs["settings"]}
    assert settings["settings"]["ROLLSCOPE_DIR"] == str(own_store)
    assert first_kwargs == {"inner": "areal_world.OneTurn", "behaviour": "tool", **settings}
    assert second_kwargs == {"inner": "areal_world.Unmarked", **settings}
    assert accept == "areal_engines.accept"
    # What is recorded already, or is AReaL's own business, is passed on as it is.
    marked = areal.traced("areal_world.OneTurn")
    for given in (
        {"workflow": "areal_world.ThroughProxy", "workflow_kwargs": {}},
        {"workflow": areal_world.OneTurn, "workflow_kwargs": None},
        {"workflow": None, "workflow_kwargs": None},
        {"workflow": "no.such.Workflow", "workflow_kwargs": {}},
        {"workflow": areal_world.OneTurn(), "workflow_kwargs": None},
        marked,
    ):
        passed = made.train(**given)[:2]
        assert passed == (given["workflow"], given["workflow_kwargs"])
    texts = complaints()
    assert any("a finished OneTurn is not recorded" in text for text in texts)
    monkeypatch.setenv("AREAL_SPMD_MODE", "1")
    ready = areal_world.OneTurn()
    workflow, kwargs, *_ = made.train(ready)
    assert isinstance(workflow, areal.TracedWorkflow)
    assert workflow.inner is ready and kwargs is None
    capture.finish()


def test_settings_travel_with_the_workflow(own_store: Path, tmp_path: Path) -> None:
    with capture.init(project="p", run="r"):
        made = areal.traced("areal_world.OneTurn", behaviour="tool")
    assert made["workflow"] == TRACED
    assert made["workflow_kwargs"]["inner"] == "areal_world.OneTurn"
    assert made["workflow_kwargs"]["settings"]["ROLLSCOPE_DIR"] == str(own_store)
    assert "ROLLSCOPE_LAUNCH" in made["workflow_kwargs"]["settings"]


def test_a_trainer_without_the_seams_says_so(own_store: Path) -> None:
    areal.attach(SimpleNamespace())
    texts = complaints()
    assert any("AReaL 1.0.4" in t and "has no actor.compute_advantages" in t for t in texts)


def grouped(rows: int = 8, turns: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Rows of two turns and differing length, padded with zeros as AReaL pads; and their parts."""
    parts = []
    for i in range(rows):
        first, second = TOK.encode(f"first {i}"), TOK.encode("é" * (i + 1))
        parts.append({"prompt": TOK.encode("p" * (i + 1)), "first": first, "second": second})
    # The second turn follows the first at once: only turn_ids can tell them apart.
    ids = [p["prompt"] + p["first"] + p["second"] for p in parts]
    written_by = [
        [-1] * len(p["prompt"]) + [0] * len(p["first"]) + [1] * len(p["second"]) for p in parts
    ]
    width = max(map(len, ids))

    def padded(values: list[list[Any]], kind: Any) -> torch.Tensor:
        return torch.tensor([v + [0] * (width - len(v)) for v in values], dtype=kind)

    result = {
        "input_ids": padded(ids, torch.int32),
        "attention_mask": padded([[1] * len(row) for row in ids], torch.bool),
        "loss_mask": padded([[int(t >= 0) for t in row] for row in written_by], torch.int32),
        "logprobs": padded([[-0.5 * (t >= 0) for t in row] for row in written_by], torch.float32),
        "versions": padded(
            [[t if t < 0 else 7 + t for t in row] for row in written_by], torch.int32
        ),
        "rewards": torch.arange(float(rows)),
    }
    if turns:
        result["turn_ids"] = padded(written_by, torch.int32)
    return result, parts


@pytest.mark.parametrize("turns", [True, False])
def test_turns_are_cut_by_turn_ids_where_there_are_some_else_by_the_mask(turns: bool) -> None:
    result, parts = grouped(turns=turns)
    for i, rollout in enumerate(areal.convert(result, tokenizer=TOK)):
        said = [TOK.decode(parts[i][name]) for name in ("first", "second")]
        assert written(rollout) == (said if turns else ["".join(said)])
        versions = [v for v in flat(rollout, "version") if v is not None]
        assert versions == [7] * len(parts[i]["first"]) + [8] * len(parts[i]["second"])
        assert len(flat(rollout)) == sum(map(len, parts[i].values()))  # no padding
        assert rollout.policy_version == 7 and rollout.reward == float(i)


def test_each_tensor_of_a_batch_is_brought_to_the_host_once(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    cpu = torch.Tensor.cpu

    def counting(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        moved.append(id(self))
        return cpu(self, *args, **kwargs)

    result, _ = grouped()
    before = {name: tensor.clone() for name, tensor in result.items()}
    monkeypatch.setattr(torch.Tensor, "cpu", counting)
    assert len(areal.convert(result, tokenizer=TOK)) == 8
    assert len(moved) == len(result)  # not once for each of eight rows
    assert all(torch.equal(result[name], before[name]) for name in before)
    moved.clear()
    result.pop("turn_ids")
    step(areal.attach(make_trainer()), [result], global_step=1)
    # Before: ids, attention, mask, log probabilities, versions; after: advantages, two rewards.
    assert len(moved) == 5 + 3
