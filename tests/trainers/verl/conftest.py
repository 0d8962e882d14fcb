"""A tiny model, and a Ray cluster that was started beforehand and knows nothing of Rollscope."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paper
import pytest
import ray
from ray.cluster_utils import Cluster
from world import make_model

from rollscope import capture


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Started with no variable of ours in its environment."""
    site = tmp_path_factory.mktemp("site")
    paper.install(site)
    sys.path.append(str(site))
    # So that actors find the fake engine, and everybody the sink.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(site)])
    ours = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith("ROLLSCOPE")}
    node = {"num_cpus": 32, "object_store_memory": 200 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    os.environ.update(ours)
    yield made
    made.shutdown()


@pytest.fixture
def connected(cluster: Cluster) -> Iterator[None]:
    """A driver of that cluster."""
    import verl  # noqa: F401  loads the plugin

    ray.init(address=cluster.address, log_to_driver=False)
    yield
    run = capture.active()
    if run is not None:
        run.finish()
    ray.shutdown()


@pytest.fixture
def driver(own_store: Path, monkeypatch: pytest.MonkeyPatch, request) -> Path:
    """A driver that asks by its environment and then connects to the cluster."""
    monkeypatch.setenv("ROLLSCOPE", "on")
    monkeypatch.setenv("ROLLSCOPE_QUIET", "on")
    request.getfixturevalue("connected")
    return own_store
