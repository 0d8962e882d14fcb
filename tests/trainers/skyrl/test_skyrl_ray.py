"""Inside Ray, where SkyRL trains: on a cluster that was started without our settings."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import world  # before SkyRL: it makes its types importable
from skyrl.train.entrypoints import main_base
from stored import Stored

from rollscope.adapters import skyrl
from rollscope.capture.cluster import share

HERE = Path(__file__).resolve().parent


class TinyExp:
    """What our entry point needs of `BasePPOExp`; the rest of it loads a model."""

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg

    def get_trainer(self) -> Any:
        return world.make(self.cfg)

    def run(self) -> None:
        asyncio.run(self.get_trainer().train())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [n for n in os.environ if n.startswith("ROLLSCOPE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_settings_reach_a_cluster_that_was_started_before(
    cluster: None, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_DIR", str(own_store))
    monkeypatch.setenv("ROLLSCOPE_PROJECT", "from the driver")
    monkeypatch.setenv("ROLLSCOPE_SEAL", "off")
    monkeypatch.setenv("ROLLSCOPE_MIN_FREE", "0")
    share()

    def train_in_ray(paths: list[str]) -> tuple[int, str | None]:
        sys.path[:0] = paths
        import world

        from rollscope import capture
        from rollscope.adapters import skyrl

        before = os.environ.get("ROLLSCOPE_DIR")
        trainer = skyrl.attach(world.make(world.config()))
        asyncio.run(trainer.train())
        capture.active().finish()  # Ray keeps its workers
        return len(world.WORLD.episodes), before

    task = ray.remote(num_cpus=1)(train_in_ray)
    episodes, before = ray.get(task.remote([str(HERE.parent), str(HERE)]), timeout=300)
    assert before is None
    found = Stored(own_store)
    assert len(found) == episodes == 18
    assert {r.fate for r in found} == {"trained"}
    assert found.projects == {("from the driver", "first try")}


def test_skyrls_own_entry_point_finds_ours(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local:
        """Ray, without a cluster: the task is called."""

        def __init__(self, task: Any) -> None:
            self.remote = task

    monkeypatch.setattr(ray, "remote", lambda **_: Local)
    monkeypatch.setattr(ray, "get", lambda result: result)
    monkeypatch.setattr("skyrl.train.utils.validate_cfg", lambda cfg: None)
    monkeypatch.setattr("skyrl.train.utils.utils.initialize_ray", lambda cfg: None)
    monkeypatch.setattr(skyrl, "_experiment", lambda cfg: TinyExp)
    parsed: list[Any] = []

    def options(cls: Any, args: list[str]) -> Any:
        parsed.append(args)
        return world.config()

    monkeypatch.setattr(main_base.SkyRLTrainConfig, "from_cli_overrides", classmethod(options))
    monkeypatch.setattr(
        sys,
        "argv",
        ["main", "trainer.override_entrypoint=rollscope.adapters.skyrl", "trainer.epochs=1"],
    )
    main_base.main()
    assert parsed == [["trainer.epochs=1"]]  # SkyRL's own options do not know the first
    assert len(Stored(own_store)) == 18


def test_both_trainers_have_an_experiment() -> None:
    from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer

    assert skyrl._experiment(world.config()) is main_base.BasePPOExp
    kind = skyrl._experiment(world.config(is_async=True))
    assert issubclass(kind, main_base.BasePPOExp)
    made = kind.get_trainer(
        object(),
        cfg=world.config(is_async=True),
        tracker=world.tracker(world.config()),
        tokenizer=world.TOK,
        train_dataset=world.Tasks(4),
        eval_dataset=None,
        inference_engine_client=world.Engine(),
        generator=None,
        colocate_pg=None,
    )
    assert isinstance(made, FullyAsyncRayPPOTrainer)
