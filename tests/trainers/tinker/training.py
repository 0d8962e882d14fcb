"""A whole run of tinker-cookbook's own `train.main`, with only the hosted service replaced."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tinker as service_package
from service import Service
from tinker_cookbook.rl import train
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from world import TOK, Add, Batches, Builder, renderer

from rollscope.adapters import tinker


class LazyAdd(Add):
    """Makes its renderer where it is used, so that it travels to other processes."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(renderer("role_colon"), a, b)


EVALUATES_LAST = hasattr(train, "_maybe_run_evals")
"""Since 0.6 the last weights are evaluated, whatever `eval_every` says."""


def groups(*numbers: int, size: int = 3) -> list[Any]:
    return [ProblemGroupBuilder(partial(LazyAdd, n, 2), size, "sums") for n in numbers]


def known(config: Any, **settings: Any) -> Any:
    """The configuration, without what this version does not know yet."""
    return config(**{k: v for k, v in settings.items() if k in config.__annotations__})


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: Any,
    test: Any = None,
    traced: bool = True,
    **changes: Any,
) -> Service:
    service = Service(tmp_path / "service")
    monkeypatch.setattr(service_package, "ServiceClient", lambda **_: service)
    monkeypatch.setattr(train, "get_tokenizer", lambda _: TOK, raising=False)  # since 0.5
    monkeypatch.setattr(train.model_info, "warn_if_renderer_not_recommended", lambda *_: None)
    builder: Any = Builder(train=Batches(batches), test=None if test is None else Batches(test))
    settings: dict[str, Any] = {
        "learning_rate": 1e-4,
        "dataset_builder": tinker.traced(builder) if traced else builder,
        "model_name": "none",
        "recipe_name": "test",
        "max_tokens": 32,
        "log_path": str(tmp_path / "sums" / "run-1"),
        "eval_every": 0,
        "save_every": 0,
        "temperature": 0.75,
    }
    config = known(train.Config, **{**settings, **changes})
    asyncio.run(train.main(config))
    return service
