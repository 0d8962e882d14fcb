"""Inside Ray, where SkyRL trains: on a cluster that was started without our settings."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from stored import Stored

from rollscope.capture.cluster import share

HERE = Path(__file__).resolve().parent


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
