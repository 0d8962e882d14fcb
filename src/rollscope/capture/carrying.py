"""Where what this process writes ends up, if it belongs to a Ray cluster; see `store.carry`.

A process at home, where the driver's store is, sees to it that another process fetches from the
other nodes. A process on another node leaves a note when it begins a run. Beyond that, both only
write to their own directory, as always.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..store import lock, paths
from ..store.carry import home
from ..store.carry.home import Claim, Note, Task
from ..store.starting import Starter
from ..store.writers import WriterInfo, steady
from . import cluster
from .problems import guard
from .settings import setting
from .setup import Setup, limits

_LONGEST = 60.0  # seconds until a process that ended at once is started again, at most


class _Home:
    """Keeps the process that fetches running, together with all others that see home's file."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._file = home.token_path(Path(task.root), task.token)
        self._starter = Starter()
        self._tries = 0
        self._soonest = 0.0

    def beat(self) -> list[str]:
        wrong = []
        try:
            self._start()
        except lock.Unsupported as error:
            wrong.append(f"nothing is fetched from other nodes: no locks here ({error})")
        except OSError as error:
            wrong.append(f"the process that fetches from other nodes did not start ({error})")
        if failed := self._starter.error():
            wrong.append(f"the process that fetches from other nodes did not start ({failed})")
        return wrong

    def _start(self) -> None:
        if steady() < self._soonest or self._starter.is_busy:
            return
        if lock.is_held(self._file):
            self._tries = 0
            return
        self._soonest = steady() + min(_LONGEST, 2.0**self._tries)
        self._tries += 1
        task = msgspec.json.encode(self.task).decode()
        self._starter.start(["-m", "rollscope.store.carry", task])


_homes: dict[tuple[str, str], _Home] = {}
"""By Ray's job and the store."""
_away: dict[Path, Path] = {}
"""Home's file for each run of this process that is fetched from there."""
_claimed: str | None = None
"""The job that this process has made a claim for."""


def beat(info: WriterInfo, *, is_last: bool = False) -> list[str]:
    """With every heartbeat: does a process fetch, and is a run away still away? A network file
    system may show home's file late. Returns what went wrong, in words."""
    for directory, token in list(_away.items()):
        if token.exists():
            home.away_path(directory).unlink(missing_ok=True)
            del _away[directory]
        else:
            home.mark_away(directory)
    return [] if is_last else [text for made in list(_homes.values()) for text in made.beat()]


def claim(ray: Any, root: str | None) -> None:
    """In the driver: say where its store is. It may be another one than before."""
    global _claimed
    if setting("ROLLSCOPE") is False or setting("ROLLSCOPE_CARRY") is False:
        return
    job, store = cluster.job(ray), Path(root) if root else paths.root()
    _claimed = job
    if (job, str(store)) in _homes:
        return
    mine = Claim(root=str(store), token=home.put_token(store, limits().mode))
    mine.alone = ray._private.worker._global_node.is_head()
    cluster.put(home.claim_key(job), msgspec.json.encode(mine))
    _at_home(ray, job, mine)


def placed(setup: Setup) -> Setup:
    """The setup for where this process is: on a node that does not share home's directory, its logs
    are left to be fetched."""
    with guard("looking for the Ray driver's store"):
        ray = cluster.connected()
        if ray is None or not cluster.is_worker(ray) or setting("ROLLSCOPE_CARRY") is False:
            return setup
        job = cluster.job(ray)
        said = _claim_of(job) or _claim_first(job, setup.root)
        if said.alone or _claimed == job:
            _at_home(ray, job, said)
            return setup
        token = home.token_path(setup.root, said.token)
        if home.sees(setup.root, said.token, setup.limits.mode):
            _at_home(ray, job, said)
            return setup
        note = Note(
            node=ray.get_runtime_context().get_node_id(),
            host=setup.host,
            directory=str(setup.directory),
            project=setup.project,
            run=setup.run,
            root=said.root,
        )
        paths.ensure_run(setup.directory, setup.project, setup.run, setup.limits.mode)
        home.mark_away(setup.directory)  # before anybody may fetch
        _away[setup.directory] = token
        cluster.put(home.note_key(job, note), msgspec.json.encode(note))
        return setup._replace(carried_to=said.root)
    return setup


def _claim_of(job: str) -> Claim | None:
    data = cluster.get(home.claim_key(job))
    return msgspec.json.decode(data, type=Claim) if data is not None else None


def _claim_first(job: str, root: Path) -> Claim:
    """The driver records nothing itself: home is the store of whoever comes first."""
    global _claimed
    mine = Claim(root=str(root), token=home.put_token(root, limits().mode))
    cluster.put(home.claim_key(job), msgspec.json.encode(mine), overwrite=False)
    said = _claim_of(job) or mine
    if said.token == mine.token:
        _claimed = job
    else:
        home.token_path(root, mine.token).unlink(missing_ok=True)
    return said


def _at_home(ray: Any, job: str, said: Claim) -> None:
    if said.alone or (job, said.root) in _homes:
        return
    mine = limits()
    task = Task(
        root=said.root,
        token=said.token,
        address=ray.get_runtime_context().gcs_address,
        node=ray.get_runtime_context().get_node_id(),
        job=job,
        min_free=mine.min_free,
        seal=mine.seal,
        mode=mine.mode,
    )
    _homes[job, said.root] = made = _Home(task)
    made.beat()
