"""The process that fetches. All that it knows of Ray stands here."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from .. import lock, writers
from ..starting import Starter
from . import home, node
from .home import Note, Task
from .source import Shared, Source

ANSWER = 60.0
"""Seconds in which a node must answer."""

NEWS = 0.2
"""Seconds between two looks for notes: the first rollout of a node waits for one."""

LOOK = 1.0
"""Seconds between two looks at all else."""

UNUSED = 600.0
"""Seconds that an actor waits for a node's first note."""

PATIENCE = 60.0
"""Seconds without the cluster's key-value store after which the cluster is given up."""

AFTERWARDS = 600.0
"""Seconds after the end of the job in which the rest must have come."""

_LONGEST_FORWARD = 60.0  # seconds until forwarding is begun again, at most
_LONGEST = 10.0  # seconds until a node that failed is asked again, at most


class Fetching:
    """Fetches everything that the notes of a Ray job tell of."""

    def __init__(self, task: Task) -> None:
        # By its full path: `ray.init` would prepare a driver, and most jobs need none of this.
        from ray._raylet import GcsClient

        self._task = task
        self._cluster = GcsClient(address=task.address)
        self._threads: dict[str, _Following] = {}
        self._forwarding = _Forwarding()
        self._ready = _Ready(task)

    def run(self) -> None:
        """Until the job has ended and all that was written is here, or is lost with its node."""
        heard = looked = writers.steady()
        ended: float | None = None
        self._ready.start()
        while True:
            now = writers.steady()
            is_look = now - looked > LOOK
            try:
                self._follow_notes()
                heard = now
                if is_look and ended is None and self._has_ended():
                    ended = now
            except Exception:
                if now - heard > PATIENCE:
                    break
            if is_look:
                looked = now
                self._ready.look()
                self._forward()
                if ended is not None and (self._is_over() or now - ended > AFTERWARDS):
                    break
            time.sleep(NEWS)
        for thread in self._threads.values():
            thread.end()
        self._forward(is_last=True)

    def _forward(self, is_last: bool = False) -> None:
        for thread in self._threads.values():
            with contextlib.suppress(OSError, lock.Unsupported):  # as its doctor tells
                self._forwarding.beat(thread.directory, thread.sinks, is_last)

    def _follow_notes(self) -> None:
        names = bytes(home.NAMESPACE, "ascii")
        prefix = home.notes_prefix(self._task.job).encode()
        for key in self._cluster.internal_kv_keys(prefix, names, timeout=ANSWER):
            if (name := key.decode()) in self._threads:
                continue
            data = self._cluster.internal_kv_get(key, names, timeout=ANSWER)
            note = msgspec.json.decode(data, type=Note) if data is not None else None
            if note is None or Path(note.root) != Path(self._task.root):
                continue
            following = _Following(self._task, note, self._ready)
            try:
                _connect(self._task.address)
            except Exception as error:
                following.tell(error)
                raise
            self._threads[name] = following
            following.start()

    def _has_ended(self) -> bool:
        jobs = self._cluster.get_all_job_info(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True, timeout=ANSWER
        )
        mine = [job for id, job in jobs.items() if id.hex() == self._task.job]
        return all(job.is_dead for job in mine)

    def _is_over(self) -> bool:
        return all(thread.is_over for thread in self._threads.values())


_connecting = threading.Lock()


def _connect(address: str) -> None:
    import ray

    with _connecting:
        if not ray.is_initialized():
            ray.init(
                address, namespace=home.NAMESPACE, log_to_driver=False, configure_logging=False
            )
            ray.cloudpickle.register_pickle_by_value(node)


def _actor(id: str) -> Any:
    """A new actor on a node. It takes no CPU, and ends with this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id=id, soft=False)
    made: Any = ray.remote(node.Node)
    return made.options(num_cpus=0, scheduling_strategy=there).remote()


class _Ready(threading.Thread):
    """An actor on each other node, started beside the job, before any note: to start Ray's driver
    and an actor takes seconds, and a node's first rollout should not wait for them."""

    def __init__(self, task: Task) -> None:
        super().__init__(daemon=True, name="getting ready")
        self._task = task
        self._actors: dict[str, tuple[Any, float, Any]] = {}

    def run(self) -> None:
        with contextlib.suppress(Exception):  # then they are made when they are needed
            if not (others := self._others()):
                return
            _connect(self._task.address)
            token = str(home.token_path(Path(self._task.root), self._task.token))
            for id in others:
                actor = _actor(id)
                self._actors[id] = actor, writers.steady(), actor.sees.remote(token)

    def _others(self) -> list[str]:
        from ray._raylet import GcsClient

        nodes = GcsClient(address=self._task.address).get_all_node_info(timeout=ANSWER)
        alive = [id.hex() for id, found in nodes.items() if found.state == 0]
        return [id for id in alive if id != self._task.node]

    def take(self, id: str) -> Any:
        """The actor that waits on a node, or a new one."""
        actor, *_ = self._actors.pop(id, (None,))
        return actor or _actor(id)

    def look(self) -> None:
        """Let go of those that nobody needs: on nodes that share home's directory, and on nodes
        from which nobody has told of a run for long."""
        for id, (_, since, sees) in list(self._actors.items()):
            is_shared = False
            with contextlib.suppress(Exception):
                import ray

                is_shared = bool(ray.wait([sees], timeout=0)[0]) and ray.get(sees)
            if is_shared or writers.steady() - since > UNUSED:
                self._actors.pop(id, None)


class _Forwarding:
    """Has what was fetched forwarded to the sinks that its writers ask for: at home, there may be
    no writer that does."""

    def __init__(self) -> None:
        self._starters: dict[tuple[Path, str], tuple[Starter, int, float]] = {}

    def beat(self, directory: Path, sinks: set[str], is_last: bool = False) -> None:
        for name in sinks:
            starter, tries, soonest = self._starters.get((directory, name), (Starter(), 0, 0.0))
            file = directory / "sinks" / f"{name}.lock"
            if (writers.steady() < soonest and not is_last) or lock.is_held(file):
                continue
            wait = min(_LONGEST_FORWARD, 2.0**tries)
            self._starters[directory, name] = starter, tries + 1, writers.steady() + wait
            starter.start(["-m", "rollscope.sinks", str(directory), name], wait=is_last)


class _Following(threading.Thread):
    """Follows one run on one node."""

    def __init__(self, task: Task, note: Note, ready: _Ready) -> None:
        super().__init__(daemon=True, name=f"from {note.host}")
        self._ready = ready
        self._task = task
        self._source = Source(task, note)
        self._link: _Link | None = None
        self._failures = 0
        self.is_closing = False

    @property
    def directory(self) -> Path:
        return self._source.directory

    @property
    def sinks(self) -> set[str]:
        """Which sinks the writers there ask for."""
        return self._source.sinks

    @property
    def is_over(self) -> bool:
        state = self._source.state
        return state.gone is not None or state.is_shared or self._source.is_over

    def run(self) -> None:
        self.tell()
        while self._source.state.gone is None and not self.is_closing:
            try:
                if self._link is None:
                    self._source.begin()
                    actor = self._ready.take(self._source.note.node)
                    self._link = _Link(self._task, self._source.note, actor)
                self._source.step(self._link)
                self._failures = 0
            except Shared:
                self._source.state.is_shared = True
                break
            except Exception as error:  # the disk here, the actor, the node, Ray: it is tried again
                self._link = None
                self.tell(error)
                time.sleep(min(_LONGEST, 0.2 * 2**self._failures))
                self._failures += 1
        with contextlib.suppress(OSError):
            self._source.write_state()

    def tell(self, error: Exception | None = None) -> None:
        """Say how it is for the doctor: what went wrong, or that nothing has come yet."""
        state = self._source.state
        if error is not None:
            words = str(error).strip().partition("\n")[0]
            state.problem = f"{type(error).__name__}: {words}"
            with contextlib.suppress(Exception):  # Ray does not answer either
                if not _is_alive(self._source.note.node):
                    state.gone = time.time()
        with contextlib.suppress(OSError):
            self._source.write_state()

    def end(self) -> None:
        self.is_closing = True
        self.join(2 * ANSWER)
        with contextlib.suppress(OSError):
            self._source.end()


def _is_alive(id: str) -> bool:
    import ray

    return any(node["NodeID"] == id and node["Alive"] for node in ray.nodes())


class _Link:
    """What an actor on the node says of one run."""

    def __init__(self, task: Task, note: Note, actor: Any) -> None:
        import ray

        self._actor = actor
        self._actor.begin.remote(note.directory, task.token)  # comes before all else it is asked
        self._ray = ray

    def more(
        self, have: dict[str, int], seen: dict[str, int], budget: int, wait: float
    ) -> node.Answer:
        asked = self._actor.more.remote(have, seen, budget, wait)
        answer: node.Answer = self._ray.get(asked, timeout=ANSWER)
        return answer

    def remove(self, name: str, size: int, other: tuple[int, int] | None) -> str:
        answer: str = self._ray.get(self._actor.remove.remote(name, size, other), timeout=ANSWER)
        return answer
