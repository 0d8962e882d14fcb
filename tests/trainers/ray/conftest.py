"""A Ray cluster of a head and eight nodes, each with a store of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rollscope import capture

NODES = 8
_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class World(NamedTuple):
    cluster: Cluster
    nodes: list[str]
    """Ray's ids."""
    folder: Path
    """Holds the nodes' stores, named by number; `home` is a link to that of the driver."""

    def actor(self, actor: type, number: int) -> ray.actor.ActorHandle:
        """An actor of this class on a node."""
        there = NodeAffinitySchedulingStrategy(node_id=self.nodes[number], soft=False)
        return ray.remote(actor).options(num_cpus=1, scheduling_strategy=there).remote()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    ours = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith("ROLLSCOPE")}
    # Actors find the tests' classes, and the same Rollscope as we do.
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    head = _NODE | {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    made = [
        cluster.add_node(**_NODE, env_vars={"ROLLSCOPE_DIR": str(folder / str(n))}, wait=False)
        for n in range(NODES)
    ]
    cluster.wait_for_nodes(600)
    os.environ.update(ours)
    yield World(cluster, [node.node_id for node in made], folder)
    cluster.shutdown()


@pytest.fixture
def driver(world: World, own_store: Path) -> Iterator[World]:
    """A driver of that cluster, before it records anything."""
    ray.init(address=world.cluster.address, log_to_driver=False)
    yield world
    while (run := capture.active()) is not None:
        run.finish()
    ray.shutdown()
