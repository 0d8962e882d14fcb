"""Recording changes nothing: not the results, not the inputs, not even when it is broken."""

import copy
import inspect
from pathlib import Path
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
    monkeypatch.setattr(worker._Converter, "submit", broken("submit"))
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


class Trackio:
    """The edge of verl's own trackio backend: keeps what verl logs."""

    def __init__(self) -> None:
        self.logged: list[tuple[Any, str, Any]] = []

    class Trace(dict):
        def __init__(self, messages: Any, metadata: Any = None) -> None:
            super().__init__(messages=messages, metadata=metadata)

    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        ((name, trace),) = data.items()
        about = {k: trace["metadata"].get(k) for k in ("sample_index", "rollout_n", "validate")}
        self.logged.append((step, name, about))


class Weave:
    """The edge of verl's own weave backend."""

    def __init__(self) -> None:
        self.logged: list[Any] = []

    def create_call(self, op: str, inputs: Any, attributes: Any) -> str:
        self.logged.append(("begin", op, sorted(inputs)))
        return op

    def finish_call(self, call: str, output: Any = None, exception: Any = None) -> None:
        self.logged.append(("end", call, type(output).__name__, exception))


@pytest.mark.parametrize(("backend", "client"), [("trackio", Trackio), ("weave", Weave)])
def test_verls_own_traces_go_on_unchanged(backend, client, model: Path, monkeypatch) -> None:
    from verl.utils import rollout_trace

    monkeypatch.setattr(rollout_trace, "_current_trace_attributes", dict)
    config = make_config(model)

    def traces() -> list[Any]:
        rollout_trace.RolloutTraceConfig.reset()
        state = rollout_trace.RolloutTraceConfig.get_instance()
        state.backend, state.client, state._initialized = backend, client(), True
        monkeypatch.setitem(__import__("sys").modules, "weave", _weave_module())
        run_legacy(config, dataset_rows(2, 2))
        return sorted(map(str, state.client.logged))

    before = traces()
    with rollscope.init(project="p", run="r"):
        during = traces()
    rollout_trace.RolloutTraceConfig.reset()
    assert before == during and len(before) >= 20


def _weave_module() -> Any:
    import contextlib
    import types

    module = types.ModuleType("weave")
    module.attributes = lambda attributes: contextlib.nullcontext()  # type: ignore[attr-defined]
    return module
