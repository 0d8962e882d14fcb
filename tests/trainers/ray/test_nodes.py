"""What actors record on nodes of their own comes to the driver's store through Ray."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import ray
from actors import Recorder
from ray.cluster_utils import Cluster

import rollscope
from conftest import NODES, World
from rollscope.checks.doctor import examine
from rollscope.store.carry import state
from rollscope.store.read.reader import Reader

EACH = 1000
LIMIT = 600.0


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.1)


def tasks(store: Path) -> list[str]:
    with Reader(store) as reader:
        rows = reader.cursor().execute("SELECT task FROM rollouts").fetchall()
    return [task for (task,) in rows]


def kill_what_fetches(store: Path) -> None:
    (file,) = (store / ".carry").iterdir()
    os.kill(int(file.read_text()), signal.SIGKILL)


def readers(world: World) -> list[int]:
    """The processes of the actors that read on the nodes."""
    raylets = {
        started.process.pid
        for node in world.cluster.worker_nodes
        for started in node.all_processes["raylet"]
    }
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and (folder / "cmdline").read_bytes().startswith(b"ray::Node"):
                found.append(int(folder.name))
    return found


def test_every_rollout_of_eight_nodes_is_here_once_though_the_process_that_fetches_is_killed(
    driver: World, own_store: Path
) -> None:
    run = rollscope.init(project="p", run="r")
    actors = [driver.actor(Recorder, n) for n in range(NODES)]
    placed = ray.get([actor.begin.remote(n) for n, actor in enumerate(actors)])
    assert {to for _, to in placed} == {str(own_store)}
    assert len({where for where, _ in placed} | {str(run.directory)}) == NODES + 1
    for first in range(0, EACH, 100):
        ray.get([actor.log.remote(first, 100) for actor in actors])
        if first in (100, 500):
            seen = NODES * (first + 100)
            until(lambda n=seen: len(tasks(own_store)) >= n, "what is recorded, while it goes on")
        if first in (200, 600):
            kill_what_fetches(own_store)
    hashes: dict[str, str] = {}
    for logs in ray.get([actor.logs.remote() for actor in actors]):
        hashes |= logs
    wanted = sorted(f"{node}/{n}" for node in range(NODES) for n in range(EACH))
    until(lambda: len(tasks(own_store)) == len(wanted), "all rollouts")
    assert sorted(tasks(own_store)) == wanted
    ray.get([actor.finish.remote() for actor in actors])
    until(lambda: not any(ray.get([a.files.remote() for a in actors])), "the nodes to be empty")
    live = run.directory / "live"
    here = {name: hashlib.sha256((live / name).read_bytes()).hexdigest() for name in hashes}
    assert here == hashes
    assert sorted(tasks(own_store)) == wanted
    run.finish()
    with Reader(own_store) as reader:
        said = [found for found in examine(reader) if found.level != "ok"]
    assert said == []


def test_actors_wait_on_the_nodes_before_anybody_records_there_and_may_be_killed(
    driver: World, own_store: Path
) -> None:
    run = rollscope.init(project="p", run="r")
    until(lambda: len(readers(driver)) == len(driver.cluster.worker_nodes), "an actor on each")
    waiting = set(readers(driver))
    actors = [driver.actor(Recorder, n) for n in (1, 5)]
    ray.get([actor.begin.remote(n) for n, actor in enumerate(actors)])
    killed = 0
    for first in range(0, 400, 50):
        ray.get([actor.log.remote(first, 50) for actor in actors])
        if first in (50, 200, 350):
            seen = 2 * first
            until(lambda n=seen: len(tasks(own_store)) >= n, "what was recorded before")
            for pid in readers(driver):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    assert killed > len(waiting), "those that took their place were killed, too"
    hashes: dict[str, str] = {}
    for logs in ray.get([actor.logs.remote() for actor in actors]):
        hashes |= logs
    wanted = sorted(f"{node}/{n}" for node in range(2) for n in range(400))
    until(lambda: len(tasks(own_store)) >= len(wanted), "all rollouts")
    ray.get([actor.finish.remote() for actor in actors])
    until(lambda: not any(ray.get([a.files.remote() for a in actors])), "the nodes to be empty")
    assert sorted(tasks(own_store)) == wanted
    live = run.directory / "live"
    assert hashes == {
        name: hashlib.sha256((live / name).read_bytes()).hexdigest() for name in hashes
    }


def test_a_directory_that_is_the_drivers_is_noticed_and_nothing_is_sent(
    driver: World, own_store: Path
) -> None:
    own_store.mkdir()
    there = driver.folder / "2"
    if there.exists():
        there.rename(driver.folder / "2-before")
    there.symlink_to(own_store)  # as if it were mounted there, too
    run = rollscope.init(project="p", run="r")
    actor = driver.actor(Recorder, 2)
    _, carried_to = ray.get(actor.begin.remote(0))
    assert carried_to is None
    ray.get(actor.log.remote(0, 10))
    assert sorted(tasks(own_store)) == sorted(f"0/{n}" for n in range(10))
    ray.get(actor.finish.remote())
    assert len(tasks(own_store)) == 10
    assert state.read_all(run.directory) == []
    assert not (run.directory / "carry" / "away").exists()


def test_if_the_driver_records_nothing_the_store_of_the_first_one_is_home(driver: World) -> None:
    first, second = driver.actor(Recorder, 3), driver.actor(Recorder, 4)
    where, carried_to = ray.get(first.begin.remote(3))
    assert carried_to is None
    root = Path(where).parents[1]
    _, to = ray.get(second.begin.remote(4))
    assert to == str(root)
    ray.get([first.log.remote(0, 5), second.log.remote(0, 5)])
    wanted = {f"{node}/{n}" for node in (3, 4) for n in range(5)}
    until(lambda: wanted <= set(tasks(root)), "what the other node recorded")
    ray.get([first.finish.remote(), second.finish.remote()])


def test_a_node_that_goes_away_takes_only_its_last_moments_along_and_is_told(
    driver: World, own_store: Path
) -> None:
    run = rollscope.init(project="p", run="r")
    stays, goes = driver.actor(Recorder, 0), driver.actor(Recorder, NODES - 1)
    ray.get([stays.begin.remote(0), goes.begin.remote(1)])
    ray.get([stays.log.remote(0, 100), goes.log.remote(0, 100)])
    until(lambda: len(tasks(own_store)) == 200, "what was recorded before")
    ray.get(goes.go_on.remote(100))
    until(lambda: len(tasks(own_store)) > 250, "what is recorded until the node goes away")
    before = set(tasks(own_store))
    id = driver.nodes[NODES - 1]
    _remove(driver.cluster, id)
    ray.get(stays.log.remote(100, 100))

    def is_told() -> bool:
        return any(s.node == id and s.gone is not None for s in state.read_all(run.directory))

    until(is_told, "the node to be told as gone")
    until(lambda: {f"0/{n}" for n in range(200)} <= set(tasks(own_store)), "the other node's")
    after = tasks(own_store)
    assert len(after) == len(set(after))
    assert before <= set(after)
    mine = sorted(int(task.partition("/")[2]) for task in after if task.startswith("1/"))
    assert mine == list(range(len(mine))), "only from its end may something be missing"
    with Reader(own_store) as reader:
        (said,) = [f for f in examine(reader) if f.text.startswith(f"node {id[:8]}")]
    assert said.level in ("warning", "error")
    assert "went away" in said.text
    assert "its 1 processes" in said.text
    ray.get(stays.finish.remote())


def _remove(cluster: Cluster, id: str) -> None:
    (node,) = [node for node in cluster.worker_nodes if node.node_id == id]
    cluster.remove_node(node, allow_graceful=False)
