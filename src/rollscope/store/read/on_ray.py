"""Work over a store that Ray Data spreads over the nodes of a cluster.

A piece of work is a function and what it is called with, such as some ids. Ray Data runs each in a
task of its own, on any node that sees the store, and streams what they give. How many run at once,
what waits, and what is tried again is Ray's business.

This is imported only when somebody asks for Ray.
"""

from __future__ import annotations

import functools
import logging
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...model.cleaner import Cleaner
from .. import paths
from .bodies import StoredRollout
from .outgoing import outgoing
from .reader import Reader

try:
    import pyarrow
    import ray
    import ray.data
    from ray.data import DataContext, Dataset
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as missing:
    what = f"Ray Data is not installed ({missing}): pip install 'rollscope[ray]'"
    raise ImportError(what, name=missing.name) from None

T = TypeVar("T")
Columns = Sequence[str] | None

MEMORY = 2 << 30
"""Bytes of the engine of one task. What does not fit goes to a temporary directory."""

_BLOCK = 8 << 20
"""Bytes of results, about, that leave a task together."""

_BATCH = 256
"""Whole rollouts that one task reads, as many as `outgoing` reads at once."""

_LOOKED_FOR = 20
"""Files by which a node tells whether it sees the same store."""


class NotThere(OSError):
    """A node of the cluster does not see the store."""


class StorePlace(NamedTuple):
    """Where a store lies, and how to tell that it is this one."""

    root: str
    known: tuple[str, ...]
    """Files in it whose names nobody else has made: those of its writers."""


class Piece(NamedTuple):
    """What one task does."""

    read: Callable[[Columns], Iterable[Any]]
    """Gives Arrow tables with these columns; None: with all."""
    rows: int | None = None


def place(reader: Reader) -> StorePlace:
    """What a task must know of the store that is read here."""
    if reader.far is not None:
        raise NotThere(f"{reader.far.url}: Ray reads folders that all nodes see; copy the store")
    known = []
    for run in reader.runs()[:_LOOKED_FOR]:
        known += [entry.path for entry in paths.entries(run.directory / "writers")[:1]]
    return StorePlace(str(reader.root), tuple(known))


def opened(store: StorePlace) -> Reader:
    """In a task: the newest state of the store."""
    reader = _opened(store)
    reader.refresh()
    return reader


@functools.lru_cache(maxsize=1)
def _opened(store: StorePlace) -> Reader:
    """Once for all tasks that a process of Ray runs."""
    if not all(Path(path).exists() for path in (store.root, *store.known)):
        raise NotThere(
            f"the node {socket.gethostname()} does not see the store {store.root}: its folder must "
            "be on a disk that all nodes share, or set RAY_ADDRESS=local to use this machine alone"
        )
    return Reader(store.root, threads=1, memory=MEMORY)


def connect() -> int:
    """Join the cluster that is there, or start Ray on this machine. Returns how many CPUs it has.

    A cluster is found as always: `RAY_ADDRESS`, or the one that was started on this machine.
    """
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def dataset(pieces: Sequence[Piece], name: str) -> Dataset:
    """The tables of all pieces as one Ray Dataset."""
    connect()
    return ray.data.read_datasource(_Source(pieces, name), override_num_blocks=len(pieces) or 1)


def mapped(work: Callable[..., Iterable[T]], asked: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """All that `work(*one)` gives for each of `asked`, in this order, while tasks go on."""
    context = DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # commands tell how far they are
    pieces = [Piece(functools.partial(_pickled, work, one)) for one in asked]
    if not pieces:
        return
    with DataContext.current(context):
        made = dataset(pieces, work.__name__.strip("_"))
    rows = iter(made.iter_rows())
    while True:
        try:
            row = next(rows, None)
        except Exception as error:
            if (why := _not_there(error)) is not None:
                raise NotThere(why) from None
            raise
        if row is None:
            return
        yield pickle.loads(row["made"])


def whole(
    reader: Reader, ids: Sequence[str], cleaner: Cleaner | None = None, *, has_tags: bool = True
) -> Iterator[StoredRollout]:
    """The same rollouts in the same order as `outgoing` gives, read and redacted in tasks."""
    there = place(reader)
    batches = (ids[first : first + _BATCH] for first in range(0, len(ids), _BATCH))
    return mapped(_whole, [(there, batch, cleaner, has_tags) for batch in batches])


def _whole(
    store: StorePlace, ids: Sequence[str], cleaner: Cleaner | None, has_tags: bool
) -> Iterator[StoredRollout]:
    yield from outgoing(opened(store), ids, cleaner, has_tags=has_tags)


def _not_there(error: BaseException | None) -> str | None:
    """What a task says that does not see the store; None: it is another error."""
    while error is not None:
        if isinstance(error, NotThere):
            return error.args[0] if error.args else str(error)
        error = getattr(error, "cause", None) or error.__cause__
    return None


def _pickled(
    work: Callable[..., Iterable[Any]], one: tuple[Any, ...], columns: Columns
) -> Iterator[Any]:
    """Results as rows of bytes, some megabytes at a time."""
    waiting: list[bytes] = []
    size = 0
    for result in work(*one):
        waiting.append(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
        size += len(waiting[-1])
        if size > _BLOCK:
            yield pyarrow.table({"made": pyarrow.array(waiting, pyarrow.large_binary())})
            waiting, size = [], 0
    yield pyarrow.table({"made": pyarrow.array(waiting, pyarrow.large_binary())})


class _Source(Datasource):  # type: ignore[misc]
    """Pieces as Ray Data reads them."""

    def __init__(self, pieces: Sequence[Piece], name: str) -> None:
        super().__init__()
        self._pieces = pieces
        self._name = name
        self._projection_map: Mapping[str, str] | None = None

    def get_name(self) -> str:
        return self._name

    def supports_projection_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        columns = None if self._projection_map is None else list(self._projection_map)
        return [
            ReadTask(
                functools.partial(piece.read, columns),
                BlockMetadata(
                    num_rows=piece.rows, size_bytes=None, input_files=None, exec_stats=None
                ),
            )
            for piece in self._pieces
        ]
