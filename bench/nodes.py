"""How soon the driver has what a node of a Ray cluster records.

python bench/nodes.py 2        on so many nodes, each a raylet on this machine; JSON on stdout
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

LATER = 10
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class Recorder:
    """An actor that records on its node. Its first rollout comes with its run."""

    def first(self) -> None:
        import rollscope

        self.run = rollscope.init(project="p", run="r")
        self.log()

    def log(self) -> None:
        from rollscope import Message, Rollout

        self.run.log(Rollout(messages=[Message(role="user", content="what is recorded")]))
        assert self.run.flush()


def main(count: int) -> dict[str, float]:
    import ray
    from ray.cluster_utils import Cluster
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    import rollscope

    folder = Path(tempfile.mkdtemp())
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    nodes = [
        cluster.add_node(**NODE, env_vars={"ROLLSCOPE_DIR": str(folder / str(n))}, wait=False)
        for n in range(count)
    ]
    cluster.wait_for_nodes(600)
    ray.init(address=cluster.address, log_to_driver=False)
    began = time.monotonic()
    run = rollscope.init(project="p", run="r", dir=folder / "home")
    live = run.directory / "live"
    actors = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
        made = ray.remote(Recorder).options(num_cpus=1, scheduling_strategy=there)
        actors.append(made.remote())
    ray.get([actor.__ray_ready__.remote() for actor in actors])
    up = time.monotonic() - began
    ray.get([actor.first.remote() for actor in actors])
    first = _until(lambda: len(list(live.iterdir())) >= count)
    later = []
    for _ in range(LATER):
        before = _size(live)
        ray.get(actors[0].log.remote())
        later.append(_until(lambda least=before: _size(live) > least))
    run.finish()
    ray.shutdown()
    cluster.shutdown()
    return {
        "nodes": count,
        "actors_up_s": up,
        "first_of_all_s": first,
        "later_s": statistics.median(later),
        "later_max_s": max(later),
        "load": os.getloadavg()[0],
    }


def _size(live: Path) -> int:
    return sum(path.stat().st_size for path in live.iterdir())


def _until(holds: object) -> float:
    """Seconds until it does."""
    assert callable(holds)
    start = time.monotonic()
    while not holds():
        time.sleep(0.005)
    return time.monotonic() - start


if __name__ == "__main__":
    os.environ |= {"ROLLSCOPE_QUIET": "1", "ROLLSCOPE_SEAL": "off", "ROLLSCOPE_MIN_FREE": "0"}
    print("\n" + json.dumps(main(int(sys.argv[1]))))
