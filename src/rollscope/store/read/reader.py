"""Reading a store: one consistent view over everything that lies in it, kept fresh.

    reader = Reader(root)
    reader.refresh()                       # cheap when nothing changed
    reader.connection.execute("SELECT count(*) FROM rollouts WHERE reward > 0.5")
    reader.get(id)                         # whole, late facts folded in

The views `rollouts`, `messages`, `spans`, `facts`, `metrics` have exactly the columns of
`model.schema` (`rollouts` one more: `superseded`) over all runs: sealed, merged and live.

**Threads.** `connection` is a connection of the calling thread; `cursor()` makes another.
`refresh` may be called by any thread: it changes everything in one transaction, so a running
query goes on over what it began with. A file may go away under a long query (compaction,
`rm`): `reading` repeats the work over the new files; use it wherever that matters.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import duckdb
from duckdb import DuckDBPyConnection

from ...model import Message, Rollout, Span
from ...model.schema import DERIVED
from .. import paths, writers
from ..engine import (
    FAILURES,
    clean_up,
    configuration,
    confine,
    connect,
    is_of_a_file,
    scratch,
)
from ..runs import RunInfo
from ..scans import Scans, damage
from ..tables import one
from ..units import Unit
from .bodies import BodyReader, RowAndRollout, Sketch, StoredRollout
from .cancel import current
from .contents import Contents, Part, StoreProblem
from .found import Found
from .watching import WatchedRuns

if TYPE_CHECKING:  # it needs packages that only readers of a bucket have
    from .far import Far

T = TypeVar("T")

_TRIES = 50

_FIRST_SLICE, _LARGEST_SLICE = 8 << 20, 128 << 20
"""Bytes. The first hits of a search show early, and large pieces keep both cores busy."""
_FIRST_FILES, _MORE_FILES = 32, 8
"""Files of a store far away that are asked first, and how many times as many are asked next."""
_LIVE_ROW = 2000
"""Bytes that a row of the tail counts for."""


class TableSlice(NamedTuple):
    """A part of a table."""

    relation: str
    size: int
    """Bytes, about."""


class Differing(NamedTuple):
    """How many rollouts stand otherwise in the sealed files than in the view."""

    logged: int
    """In live logs only."""
    unfolded: int
    """With late facts, or pieces, that their row does not have yet."""
    superseded: int
    """Made again by a later launch. Whoever reads the files has to leave them out."""


class Reader:
    """Reads a store. Close it, or use it as a context manager."""

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        threads: int | None = None,
        memory: int | None = None,
        only: Path | None = None,
        far: Far | None = None,
    ) -> None:
        """`threads` and `memory` (bytes) bound the engine; `only` is the directory of the one
        run that is read; `far` is a store on object storage, which is then read instead of
        `root`, and closed with the reader."""
        self.threads = threads
        """Threads of the engine; None: as many as there are cores."""
        self.far = far
        root = root if far is None else far.folder
        self.root = Path(root).expanduser().absolute() if root is not None else paths.root()
        self.temporary = temporary = scratch()
        """A directory that goes with the reader. Besides the store the only one it may touch."""
        self._database = connect(configuration(temporary, threads, memory))
        # GLOBAL: without it a setting of an extension holds for this one connection alone.
        self._database.execute("SET GLOBAL parquet_metadata_cache = true")
        # Fetching columns ahead is for files far away. Here it only copies: a million numbers of
        # two columns are read in 18 ms of CPU instead of 26 without it.
        if far is None:
            self._database.execute("SET GLOBAL disable_parquet_prefetching = true")
        else:
            far.attach(self._database)
        confine(self._database, [self.root, temporary, *([far.prefix] if far else [])])
        self._finalizer = weakref.finalize(self, clean_up, self._database, temporary)
        self._local = threading.local()
        self._lock = threading.RLock()
        self._watching = WatchedRuns(self.root, only, None if far is None else far.trouble)
        self._contents = Contents(self._database.cursor(), self._watching, temporary, far)
        self.found = Found(self._database.cursor(), self._watching, self._contents)
        """What checks found."""
        self.refresh()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back memory and temporary files."""
        self._finalizer()
        if self.far is not None:
            self.far.close()

    # -- what is asked ---------------------------------------------------------------------

    @property
    def connection(self) -> DuckDBPyConnection:
        """A connection of this thread to the views."""
        if not hasattr(self._local, "connection"):
            self._local.connection = self.cursor()
        connection: DuckDBPyConnection = self._local.connection
        return connection

    def cursor(self) -> DuckDBPyConnection:
        """A new connection to the views. One thread may use it at a time."""
        made = self._database.cursor()
        if (client := current()) is not None:
            client.take(made)
        return made

    def reading(self, work: Callable[[DuckDBPyConnection], T]) -> T:
        """`work(connection)`, repeated over fresh files if one vanished or proves damaged."""
        for attempt in range(_TRIES):
            version = self.version
            self._contents.gathered.asked += 1
            try:
                # A client that may leave gets its own connection, so that only its query is
                # interrupted.
                return work(self.connection if current() is None else self.cursor())
            except FAILURES as error:
                if attempt == _TRIES - 1 or not self.recovers(error, version):
                    raise
        raise AssertionError("unreachable")

    def recovers(self, error: Exception, since: int) -> bool:
        """A query failed: may it succeed over what the store is now? `since` is the `version`
        at which it began."""
        self._told(error)
        of_columns = isinstance(error, duckdb.BinderException)  # another file in the place of one?
        return (of_columns or is_of_a_file(error)) and self._recover(error, since)

    def get(self, id: str) -> Rollout | None:
        """A whole rollout, late facts folded in. Opens only the files that hold it."""
        return self._steadily(lambda bodies: bodies.rollout(id))

    def opened(self, id: str, most: int) -> RowAndRollout | None:
        """A rollout with its thin row; only that row if it has more than `most` messages."""
        return self._steadily(lambda bodies: bodies.opened(id, most))

    def get_many(self, ids: Sequence[str]) -> list[StoredRollout]:
        """Whole rollouts in this order: one look into each file for all of them."""
        return self._steadily(lambda bodies: bodies.get_many(ids))

    def messages(self, id: str, first: int = 0, stop: int | None = None) -> list[Message]:
        """Messages `first` up to, not including, `stop` of a rollout; the rest is not loaded."""
        return self._of(id, lambda bodies, homes: bodies.messages(id, homes, first, stop))

    def outline(self, id: str) -> list[Sketch]:
        """Every message of a rollout in a few words and numbers, without its body."""
        return self._of(id, lambda bodies, homes: bodies.outline(id, homes))

    def spans(self, id: str) -> list[Span]:
        """All spans of a rollout."""
        return self._of(id, lambda bodies, homes: bodies.spans(id, homes))

    def _of(self, id: str, work: Callable[[BodyReader, list[Unit]], list[T]]) -> list[T]:
        """What the units that hold a rollout have of it; nothing if there is no such rollout."""

        def found(bodies: BodyReader) -> list[T]:
            location = bodies.find(id)
            return [] if location is None else work(bodies, location.homes)

        return self._steadily(found)

    def _steadily(self, work: Callable[[BodyReader], T]) -> T:
        """`work` over one state of the store: again, if a refresh came in between."""
        contents = self._contents

        def asked(db: DuckDBPyConnection) -> T:
            return work(
                BodyReader(
                    db, contents.scans, contents.units.values(), contents.filled, contents.homes
                )
            )

        while True:
            changes = contents.changes
            result = self.reading(asked)
            if changes == contents.changes and changes % 2 == 0:
                return result
            with self._lock:
                pass  # wait for the refresh that is under way

    def runs(self) -> list[RunInfo]:
        """Every run, under its true name."""
        return [run.info for run in self._watching.runs.values()]

    def files(self, table: str) -> list[str]:
        """The exact list of sealed files of a table, for other engines."""
        units = self._contents.units.values()
        files = [unit.file(table) for unit in units if table in unit.tables]
        if self.far is None:
            return [str(file) for file in files]
        return [self.far.address(file) for file in files]

    def differing(self) -> Differing:
        """What another engine does not see, or should not, in `files`."""

        def counted(db: DuckDBPyConnection) -> Differing:
            sealed = "(SELECT id FROM tail.homes WHERE source <> '')"
            logged = f"(SELECT DISTINCT id FROM tail.rollouts WHERE id NOT IN {sealed})"
            superseded = f"rollouts WHERE superseded AND id NOT IN {logged}"
            counts = (
                one(db, f"SELECT count(DISTINCT id) FROM {relation}")
                for relation in (logged, sealed, superseded)
            )
            return Differing(*map(int, counts))

        return self.reading(counted)

    @property
    def units(self) -> list[Unit]:
        """The sealed units that count."""
        return list(self._contents.units.values())

    def relation(self, table: str, units: list[Unit], *, filename: bool = False) -> str | None:
        """The rows of a table in these units; None: none has it."""
        return self._contents.scans.relation(table, units, filename=filename)

    def slices(self, table: str) -> tuple[DuckDBPyConnection, list[TableSlice]]:
        """A table in pieces, the newest first and each larger than the one before.

        Together they hold every row once, over the connection that comes with them, which
        keeps to this state of the store until it is closed.
        """
        with self._lock:
            db = self.cursor()
            db.begin()
            live = int(one(db, f"SELECT count(*) FROM tail.{table}")) * _LIVE_ROW
            units = [unit for unit in self._contents.units.values() if table in unit.tables]
        made = [TableSlice(f"tail.{table}", live)] if live else []
        wanted, batch, size = _FIRST_SLICE, list[Unit](), 0
        for number, unit in enumerate(units):
            batch.append(unit)
            size += self._contents.scans.size(unit, table)
            if size >= wanted or number == len(units) - 1:
                relation = self._contents.scans.relation(table, batch)
                made += [TableSlice(relation, size)] if relation is not None else []
                wanted, batch, size = min(2 * wanted, _LARGEST_SLICE), [], 0
        return db, made

    def problems(self) -> list[StoreProblem]:
        """Every file, or part of one, that is not shown, and why."""
        found = self.found.problems()
        if self.far is not None and self.far.silent is not None:
            found[self.far.url] = f"{self.far.silent}; what came before is shown"
        derived = [StoreProblem(path, text) for path, text in found.items()]
        return sorted([*self._contents.problems(), *derived])

    def writers(self, problems: dict[str, str] | None = None) -> list[writers.WriterInfo]:
        """Every process that wrote, of all runs. Files that cannot be read are told in
        `problems`."""
        return [
            info
            for run in self._watching.runs.values()
            for info in writers.read_infos(run.info.directory, problems).values()
        ]

    def damage(self) -> dict[str, str]:
        """What is wrong with sealed files, by path. All of each is read; and what was wrong at
        first sight is among the `problems`."""
        found = {}
        with self.cursor() as db:
            scans = Scans(db, self.far)
            for unit in self.units:
                for path in map(unit.file, unit.tables):
                    found[path] = scans.damage(path, unit.info.files.get(path.name))
            for derived in self.found.all_units:  # these lie here, always
                for path in map(derived.file, DERIVED):
                    found[path] = damage(db, path, derived.info.files.get(path.name))
        return {
            str(path): why
            for path, why in found.items()
            if why is not None and (self.far is not None or path.exists())
        }

    # -- keeping up ------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Goes up whenever `refresh` has found something new."""
        return self._contents.changes // 2 + self.found.changes

    @property
    def one_scan(self) -> bool:
        """Is the view `rollouts` one scan of files and nothing else?"""
        return self._contents.one_scan

    def parts(self) -> Iterator[Part]:
        """Larger and larger parts of the view of rollouts, the newest files first: for a store far
        away, where each file costs a way there and back. For a folder there are none."""
        count = _FIRST_FILES
        while self.far is not None and count < len(self._contents.plain):
            yield self._contents.part(count)
            count *= _MORE_FILES

    def described(self) -> Part | None:
        """All of the view of rollouts that no description tells; None: ask the view."""
        return None if self.far is None else self._contents.part(0)

    def is_still(self, version: int) -> bool:
        """Is the store as it was in that version, and nothing of it just changing?"""
        return self._contents.changes % 2 == 0 and self.version == version

    def refresh(self) -> bool:
        """See what changed in the store. Returns whether anything did."""
        if self.far is not None:
            self.far.look()
        is_news = False
        with self._lock:
            for attempt in range(_TRIES):
                try:
                    is_news = self._contents.refresh() or is_news
                    return self.found.refresh() or is_news
                except FAILURES as error:
                    self._told(error)
                    is_moved = isinstance(error, (FileNotFoundError, duckdb.IOException))
                    if attempt == _TRIES - 1 or (not is_moved and not self._is_broken(error)):
                        raise
                    self._watching.forget()
                    self.found.forget()
                    time.sleep(0.001 * attempt)
        return False

    # -- when a query fails ----------------------------------------------------------------

    def _recover(self, error: Exception, version: int) -> bool:
        """After a failed query: did anything change, so that it is worth another try?"""
        with self._lock:
            if self.version != version:
                return True  # somebody else has looked meanwhile
            if self.far is not None:
                self.far.look(now=True)
            self._watching.forget()
            self.found.forget()
            if self.refresh():
                return True
            return self._is_broken(error) and self.refresh()

    def _told(self, error: Exception) -> None:
        """Raise it in words for a person, if it was the storage that failed."""
        if self.far is not None:
            self.far.told(error)

    def _is_broken(self, error: Exception) -> bool:
        """Was it a damaged file that nobody knew of? From now on it is not shown."""
        at_sight = not is_of_a_file(error)
        return self.found.find_broken(at_sight=at_sight) or self._contents.find_broken(
            str(error), at_sight=at_sight
        )
