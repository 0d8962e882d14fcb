"""Recording changes nothing: not the results, not the inputs, not even when it is broken."""

import asyncio
import copy
import importlib
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from driving import run_legacy, run_v1
from world import SameAgain, dataset_rows, legacy_batch, make_config, stored

import rollscope
from rollscope.adapters.verl import convert, recording, trainer, trainer_legacy, trainer_v1, worker
from rollscope.capture.live import LiveRollout


def same(a: Any, b: Any) -> bool:
    """Equal outputs of the two trainers, request ids apart."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        timing = {"metrics", "timing"}
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a.keys() - timing)
    return bool(a == b)


def legacy(config: Any) -> dict[str, Any]:
    _, _, output, _ = run_legacy(config, dataset_rows(3, 2), engine=SameAgain)
    return {**dict(output.batch.items()), **output.non_tensor_batch, "meta": output.meta_info}


def v1(config: Any) -> dict[str, Any]:
    _, _, queue, _ = run_v1(config, dataset_rows(3, 1), engine=SameAgain)
    return {
        key: {k: row[k] for k in ("prompts", "responses", "response_mask", "rm_scores")}
        for key, row in queue.rows.items()
    } | {"tags": queue.tags}


@pytest.mark.parametrize("go", [legacy, v1])
def test_results_are_the_same_with_and_without_recording(go, model: Path, own_store: Path) -> None:
    config = make_config(model)
    before = go(config)
    with rollscope.init(project="p", run="r"):
        during = go(config)
    assert len(stored(own_store)) == 6
    assert same(before, during)


@pytest.mark.parametrize("go", [legacy, v1])
def test_a_broken_adapter_leaves_the_results_unchanged(go, model: Path, monkeypatch) -> None:
    config = make_config(model)
    with rollscope.init(project="p", run="r") as run:
        go(config)  # everything is wrapped now
        before = go(config)
        calls = sabotage(monkeypatch)
        during = go(config)
    assert same(before, during)
    assert calls and run.counters.recorded == 12


def sabotage(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every function of the adapter raises, apart from the wrappers around verl's own."""
    calls: list[str] = []

    def broken(name: str) -> Any:
        def raises(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            raise RuntimeError(f"sabotage: {name}")

        return raises

    keep = {"traced", "patch", "guard", "inside", "here"}
    for module in (convert, recording, worker, trainer, trainer_legacy, trainer_v1):
        for name, found in inspect.getmembers(module, inspect.isfunction):
            wraps = name in keep or name.startswith("patch") or name == "_recorded"
            if found.__module__.startswith("rollscope") and not wraps:
                monkeypatch.setattr(module, name, broken(name))
    return calls


@pytest.mark.parametrize("go", [legacy, v1])
def test_a_broken_run_leaves_the_results_unchanged(go, model: Path, monkeypatch) -> None:
    config = make_config(model)
    with rollscope.init(project="p", run="r"):
        before = go(config)

        def raises(*args: Any, **kwargs: Any) -> Any:
            raise OSError("sabotage")

        for name in ("begin", "add", "set", "put_span", "end", "new_span_id"):
            monkeypatch.setattr(LiveRollout, name, raises)
        assert same(before, go(config))


def test_inputs_are_not_changed_more_than_verl_changes_them_itself(model: Path) -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker  # noqa: F401

    config = make_config(model)
    columns = dataset_rows(2, 2)
    kept = copy.deepcopy(columns)
    with rollscope.init(project="p", run="r"):
        run_legacy(config, columns)
    assert columns == kept
    batch = legacy_batch(columns)
    assert sorted(batch.non_tensor_batch) == sorted(kept)


SEAMS = [
    ("verl.experimental.agent_loop.agent_loop", "AgentLoopWorker", "_run_agent_loop"),
    ("verl.experimental.agent_loop.agent_loop", "AgentLoopWorker", "_compute_score"),
    ("verl.experimental.agent_loop.agent_loop", "AgentLoopManager", "generate_sequences"),
    ("verl.experimental.agent_loop.tool_agent_loop", "ToolAgentLoop", "_call_tool"),
    ("verl.utils.rollout_trace", None, "rollout_trace_op"),
    ("verl.trainer.ppo.ray_trainer", None, "compute_advantage"),
    ("verl.trainer.ppo.ray_trainer", "RayPPOTrainer", "_update_actor"),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer", "_compute_advantage"),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer", "_update_actor"),
    ("verl.trainer.ppo.v1.replay_buffer", "ReplayBuffer", "_clear_groups"),
    ("verl.experimental.separation.ray_trainer", None, "compute_advantage"),
    ("verl.experimental.fully_async_policy.detach_utils", None, "addition_process"),
    ("verl.utils.tracking", "Tracking", "log"),
]


@pytest.mark.parametrize(("module", "cls", "name"), SEAMS)
def test_a_seam_that_is_not_there_is_told_once_with_the_version_and_in_doctor(
    module, cls, name, model: Path, own_store: Path, monkeypatch, caplog
) -> None:
    from rollscope.adapters.verl import attach

    found = importlib.import_module(module)
    monkeypatch.delattr(found if cls is None else getattr(found, cls), name)
    config = make_config(model)
    with rollscope.init(project="p", run="r"):
        attach(config)
        attach(config)
    told = [r.getMessage() for r in caplog.records if r.name == "rollscope"]
    assert len(told) == 1 and all(word in told[0] for word in ("verl 0.9.1", module, name)), told
    (info,) = own_store.glob("*/*/writers/*.json")
    problems = [p["text"] for p in json.loads(info.read_text())["problems"]]
    assert any(module in p and name in p for p in problems), problems


def test_a_function_of_another_version_runs_as_it_is_and_is_told(
    model: Path, own_store: Path, monkeypatch, caplog
) -> None:
    """verl 0.7.1 computes the score of one output, and passes everything by name."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from rollscope.adapters.verl import attach

    async def _compute_score(
        self, output, prompts, responses, attention_mask, input_ids, position_ids, kwargs
    ):
        return prompts

    monkeypatch.setattr(AgentLoopWorker, "_compute_score", _compute_score)
    names = ("prompts", "responses", "attention_mask", "input_ids", "position_ids", "kwargs")
    with rollscope.init(project="p", run="r"):
        attach(make_config(model))
        call = AgentLoopWorker._compute_score(None, "output", **{name: name for name in names})
        assert asyncio.run(call) == "prompts"
    (told,) = [r.getMessage() for r in caplog.records if r.name == "rollscope"]
    assert "verl 0.9.1" in told and "_compute_score has no parameter outputs: it is (self" in told


def test_every_function_is_verls_own_again_when_the_run_is_over(model: Path) -> None:
    from rollscope.adapters.verl import attach

    places = [
        (found if cls is None else getattr(found, cls), name)
        for module, cls, name in SEAMS
        for found in [importlib.import_module(module)]
    ]
    before = [vars(owner)[name] for owner, name in places]
    with rollscope.init(project="p", run="r"):
        attach(make_config(model))
        during = [vars(owner)[name] for owner, name in places]
    assert not any(a is b for a, b in zip(before, during, strict=True))
    assert all(vars(owner)[name] is b for (owner, name), b in zip(places, before, strict=True))


def test_a_row_that_no_worker_made_gets_no_advantage_and_that_is_told(
    model: Path, own_store: Path
) -> None:
    """The legacy trainer has no names for rows: one that does not fit is never guessed."""
    import verl.trainer.ppo.ray_trainer as module
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    from rollscope.adapters.verl import attach, trainer_legacy

    config = make_config(model, "algorithm.adv_estimator=grpo")
    columns = {**dataset_rows(2, 2), "priority": list(range(4))}
    with rollscope.init(project="p", run="r"):
        attach(config)
        _, _, output, _ = run_legacy(config, columns)
        batch = legacy_batch(columns)
        manager = SimpleNamespace(config=config, rollout_config=config.actor_rollout_ref.rollout)
        trainer_legacy._note(manager, batch, output)
        batch.meta_info.pop("global_steps")
        batch = batch.union(output)
        batch.batch["responses"][1, 0] += 1  # as if it had been written elsewhere
        batch.non_tensor_batch["uid"][2] = "uid-0"  # one of another group
        batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
        module.compute_advantage(
            batch, adv_estimator=AdvantageEstimator.GRPO, config=config.algorithm
        )
    advantages = {(r.group, r.index): r.advantage for r in stored(own_store)}
    assert [k for k, v in advantages.items() if v is None] == [("uid-0", 1), ("uid-1", 0)]
    (info,) = own_store.glob("*/*/writers/*.json")
    problems = [p["text"] for p in json.loads(info.read_text())["problems"]]
    assert any("rows without a rollout" in p for p in problems), problems
