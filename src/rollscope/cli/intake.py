"""One import into one run: its name, what it has already, and what is new."""

from __future__ import annotations

import functools
import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..model.identity import keyed_id
from ..store import paths
from ..store.writers import IMPORT, read_infos
from .output import progress, say

if TYPE_CHECKING:
    from ..capture import Run
    from ..model import Rollout

PATIENCE = 120.0
"""Seconds without a newly sealed log after which sealing is left to others."""
QUEUED = 32 * 10**6
"""Bytes on their way to the disk after which an import waits."""
_FROM = "imported_from"
"""In the writer's `config`: the path that was imported."""
_ORIGIN = ("id", "project", "run", "launch", "worker")
"""What a rollout loses of itself: it gets a new place. `meta.origin` keeps it."""


def run_name(store: Path, project: str, path: Path) -> str:
    """The run that a path is imported into: named by as much of the path as tells it from what
    was imported from elsewhere."""
    whole = path.absolute()
    parts = [*whole.parts[1:-1], stem(whole)]
    names = ["/".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    names += [str(whole).strip("/"), str(whole)]
    return next(
        (name for name in names if _is_ours(paths.run_dir(store, project, name), path)), names[-1]
    )


def stem(path: Path) -> str:
    """The name without its ending: `out` for `out.jsonl.gz`."""
    if path.is_dir():
        return path.name
    return Path(path.stem).stem if path.suffix in (".gz", ".zst") else path.stem


def _is_ours(run: Path, path: Path) -> bool:
    """Is there no such run, or was it imported from this path?"""
    return not run.exists() or _source(path) in _sources(run).values()


def _sources(run: Path) -> dict[str, str]:
    """Where each writer of a run imported from."""
    infos = read_infos(run).items()
    found = {writer: info.config for writer, info in infos if isinstance(info.config, dict)}
    return {writer: str(config[_FROM]) for writer, config in found.items() if _FROM in config}


@functools.lru_cache(maxsize=8)  # asked for every rollout
def _source(path: Path) -> str:
    return str(path.resolve())


class Intake:
    """Takes the rollouts of one path into a run, which begins with the first of them."""

    def __init__(self, store: Path, project: str, name: str, path: Path) -> None:
        self.store = store
        self.project = project
        self.name = name
        self.path = path
        self.run: Run | None = None
        self.new = 0
        self.already = 0
        self._known: set[str] = set()
        self._before: set[str] = set()
        """What earlier imports of this path have brought, and was not found again."""
        self._names: Counter[int] = Counter()

    def begin(self) -> Run:
        """The run, begun if it is not yet."""
        if self.run is None:
            from .. import capture

            self._look()
            config = {_FROM: _source(self.path)}
            self.run = capture.init(self.project, self.name, dir=self.store, config=config)
        return self.run

    def take(self, rollout: Rollout, source: Path) -> None:
        """Log a rollout, unless an earlier import has brought it."""
        run = self.begin()
        id = self._id(rollout, source)
        if id in self._known:
            self.already += 1
            self._before.discard(id)
            return
        rollout.key = rollout.key or rollout.id
        _keep_origin(rollout)
        rollout.id = id
        run.log(rollout)
        self.new += 1
        if self.new % 64 == 0 or run.queued > QUEUED:
            self.wait()

    def _id(self, rollout: Rollout, source: Path) -> str:
        """The same for the same rollout of the same file, wherever in it it stands and however
        the file was named; and another one for another rollout, whatever it is called."""
        name = f"{_source(source)}\0{rollout.key or rollout.id}\0{_digest(rollout)}"
        short = hash(name)  # eight bytes a name, however long names are
        self._names[short] += 1
        return keyed_id(self.project, self.name, IMPORT, f"{name}\0{self._names[short]}")

    def wait(self) -> None:
        """Never more than `QUEUED` bytes wait for the disk, whatever the file holds."""
        while self.run is not None and not self.run.flush():
            say("the disk is slow; waiting for it")

    def finish(self, *, is_crash: bool = False) -> None:
        if self.run is not None:
            self.run.finish(is_crash=is_crash)

    @property
    def gone(self) -> int:
        """Rollouts of an earlier import of this path that are not there any more."""
        return len(self._before)

    @property
    def lost(self) -> dict[str, int]:
        """Rollouts that could not be written, by reason."""
        return {} if self.run is None else dict(self.run.counters.dropped)

    def metrics(self, step: int | None, values: dict[str, float]) -> None:
        """Log the metrics that the run does not have yet."""
        run = self.begin()
        fresh = {name: v for name, v in values.items() if (step, name) not in self._has_metrics}
        if fresh:
            run.metrics(step, fresh)

    def _look(self) -> None:
        """What the run has already. A store that is read before it grows takes little memory."""
        from ..query import Store

        self._has_metrics: set[tuple[int | None, str]] = set()
        if not paths.run_dir(self.store, self.project, self.name).exists():
            return
        here = (self.project, self.name)
        ours = {w for w, source in _sources(paths.run_dir(self.store, *here)).items()
                if source == _source(self.path)}  # fmt: skip
        store = Store(self.store)
        try:
            where = "WHERE project = ? AND run = ?"
            for id, writer in store.sql(
                f"SELECT id, writer FROM rollouts {where}", here
            ).fetchall():
                self._known.add(id)
                if writer in ours:
                    self._before.add(id)
            self._has_metrics.update(
                store.sql(f"SELECT step, name FROM metrics {where}", here).fetchall()
            )
        finally:
            store.close()

    def sealed(self) -> None:
        """Wait until a large import is sealed: a reader holds unsealed logs in memory."""
        if self.run is None:
            return
        logs, own = self.run.directory / "live", f"{self.run.writer}-*"
        total = left = len(list(logs.glob(own)))
        if total <= 1:
            return
        since = time.monotonic()
        with progress("sealing", total) as update:
            while now := len(list(logs.glob(own))):
                if now < left:
                    left, since = now, time.monotonic()
                if time.monotonic() - since > PATIENCE:
                    say(f"{left} logs are not sealed yet; `rollscope compact` does it")
                    return
                update(total - left)
                time.sleep(0.1)


def _keep_origin(rollout: Rollout) -> None:
    """Its id and place in the store that it came from; the first one, if it has come far."""
    place = {name: getattr(rollout, name) for name in _ORIGIN}
    known = {name: value for name, value in place.items() if value is not None}
    if known and "origin" not in rollout.meta:
        rollout.meta = {**rollout.meta, "origin": known}
    rollout.project = rollout.run = rollout.launch = rollout.worker = None


def _digest(rollout: Rollout) -> str:
    """Two rollouts with the same are the same: everything in it counts."""
    try:
        data = msgspec.msgpack.encode(rollout, enc_hook=_plain)
    except (OverflowError, TypeError, ValueError, RecursionError):
        data = repr(rollout).encode("utf-8", "replace")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value.arrays()) if hasattr(value, "arrays") else repr(value)
