"""A selection as Parquet: the five tables and what checks found, in the store's open format.

    folder/rollouts/00000.parquet, folder/messages/00000.parquet, ...

A shard holds some rollouts with everything that belongs to them. Without redaction, the engine
copies the rows. With redaction, they become lines of a log again, which is then sealed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model import Rollout
from ..model.cleaner import Cleaner
from ..model.problem import Problem
from ..model.schema import DERIVED, METRICS
from ..model.wire import facts_line, rollout_line
from ..store import derived, disk
from ..store.header import Header
from ..store.lines import Spool
from ..store.read.bodies import StoredRollout
from ..store.read.reader import Reader
from ..store.read.records import to_facts
from ..store.seal.segment import build, connect
from ..store.tables import columns, rows, stage
from ._encode import line
from ._export import ExportPlan, ExportState, LineCount, Shard
from ._five_tables import is_five_tables, metrics, rollouts, shards
from ._tables import to_parquet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OPTIONS = "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)"
_ORDER = {
    "rollouts": 't.step, t."group", t.index, t.id',
    "messages": "t.rollout, t.n",
    "spans": "t.rollout, t.start",
    "facts": "t.rollout, t.time, t.n",
}
"""The tables of a shard; metrics belong to runs and come last."""
_FOUND = {"checked": "t.rollout, t.subject", "findings": 't.rollout, t."check", t.message, t.start'}
_NO_RANGE: dict[str, dict[str, None]] = {"checked": {}, "findings": {"start": None, "end": None}}
_SHARD = 32 << 20
"""Bytes of messages of a shard on disk, about."""
_FIRST, _MOST = 512, 100_000
"""Rollouts of the first shard, and of any shard at most."""
_SPOOLED = 32 << 20
"""Bytes of lines after which a redacted shard ends: the engine holds ten times that."""
_FACTS = 512
"""Rollouts whose facts are asked for at once."""


def recognise(path: Path) -> bool:
    """A folder that this has written. A store's own folders are no export."""
    return path.is_dir() and is_five_tables(path)


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every rollout, with its messages, spans and late streams."""
    yield from rollouts(path)


def files(folder: Path) -> list[Path]:
    """The files that are read together."""
    return shards(folder)


def read_metrics(path: Path) -> Iterator[tuple[int | None, dict[str, float]]]:
    """The numbers of the run that was exported."""
    yield from metrics(path)


def writer(reader: Reader, plan: ExportPlan, cleaner: Cleaner | None) -> FiveTables:
    return FiveTables(reader, cleaner)


class FiveTables:
    """Writes shards of rollouts, messages, spans and facts, and metrics at the end."""

    def __init__(self, reader: Reader, cleaner: Cleaner | None) -> None:
        self._reader = reader
        self._cleaner = cleaner
        self._count = _FIRST

    def write(self, folder: Path, state: ExportState, shard: Shard) -> LineCount:
        made = folder / "shard"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        if self._cleaner is None:
            count = self._copied(made, shard)
        else:
            count = self._cleaned(made, shard, self._cleaner)
        for table in (*_ORDER, *DERIVED):
            if (made / f"{table}.parquet").exists():
                target = folder / "out" / table / f"{state.shards:05}.parquet"
                _put(made / f"{table}.parquet", target)
        shutil.rmtree(made)
        return LineCount(count)

    def finish(self, folder: Path, state: ExportState) -> Path:
        """The metrics of the runs that the rollouts belong to."""
        lines = folder / "metrics.ndjson"
        with lines.open("wb") as file:
            for project, run in sorted(self._runs(folder / "ids")):
                for row in self._metrics(project, run):
                    file.write(line(row) + b"\n")
        made = folder / "metrics.parquet"
        to_parquet(lines, {column.name: column.type for column in METRICS}, made)
        _put(made, folder / "out" / "metrics" / "00000.parquet")
        return folder / "out"

    # -- as it lies ------------------------------------------------------------------------

    def _copied(self, folder: Path, shard: Shard) -> int:
        ids: list[str] = []
        for id in shard.ids(lambda: len(ids) >= self._count):
            ids.append(id)
        self._reader.reading(lambda db: self._copy(db.cursor(), ids, folder))
        size = (folder / "messages.parquet").stat().st_size
        fit = len(ids) * _SHARD // max(1, size)
        self._count = max(1, min(4 * self._count, fit, _MOST))
        return len(ids)

    def _copy(self, db: DuckDBPyConnection, ids: list[str], folder: Path) -> None:
        db.execute(
            "CREATE OR REPLACE TEMP TABLE chosen AS SELECT unnest(?::VARCHAR[]) AS id", [ids]
        )
        for table, order in (_ORDER | self._found()).items():
            key = "id" if table == "rollouts" else "rollout"
            names = columns(table, prefix="t.") if table in _ORDER else derived.columns(table, "t.")
            select = (
                f"SELECT {names} FROM {table} t "
                f"WHERE t.{key} IN (SELECT id FROM chosen) ORDER BY {order}"
            )
            # The engine may write nowhere but in its own directory: each file moves from there.
            made = self._reader.temporary / f"export-{os.getpid()}-{table}.parquet"
            path = str(made).replace("'", "''")
            db.execute(f"COPY ({select}) TO '{path}' {_OPTIONS}")
            shutil.move(made, folder / f"{table}.parquet")
        db.close()

    def _found(self) -> dict[str, str]:
        """The tables of what checks found, with their order, if any check has looked."""
        return _FOUND if self._reader.found.units else {}

    # -- redacted --------------------------------------------------------------------------

    def _cleaned(self, folder: Path, shard: Shard, cleaner: Cleaner) -> int:
        spool = Spool(folder / "lines.ndjson")
        logs = _Logs(cleaner)
        ids: list[str] = []
        for stored in shard.rollouts(lambda: logs.size > _SPOOLED):
            logs.add(spool, stored)
            ids.append(str(stored.rollout.id))
        for first in range(0, len(ids), _FACTS):
            logs.add_facts(spool, self._facts(ids[first : first + _FACTS]))
        db = connect(folder)
        try:
            spool.load(db)
            stage(db, logs.headers)
            build(db, folder, Header())
        finally:
            db.close()
            spool.remove()
        for table in self._found():
            self._clean_found(folder, table, ids, cleaner)
        return len(ids)

    def _clean_found(self, folder: Path, table: str, ids: list[str], cleaner: Cleaner) -> None:
        """What checks found in these rollouts. Clean texts have other ranges of characters."""
        names = derived.columns(table)
        sql = f"SELECT {names} FROM {table} WHERE rollout IN (SELECT unnest($ids))"
        found = self._reader.reading(lambda db: list(rows(db.cursor(), sql, {"ids": ids})))
        lines = folder / f"{table}.ndjson"
        with lines.open("wb") as file:
            for row in found:
                names_clean = {name: cleaner.name(row[name]) for name in ("project", "run")}
                said = {"text": cleaner.text(row["text"])} if table == "findings" else {}
                file.write(line({**row, **names_clean, **said, **_NO_RANGE[table]}) + b"\n")
        to_parquet(lines, {c.name: c.type for c in DERIVED[table]}, folder / f"{table}.parquet")
        lines.unlink()

    def _facts(self, ids: list[str]) -> list[dict[str, Any]]:
        sql = f"SELECT {columns('facts')} FROM facts WHERE rollout IN (SELECT unnest($ids))"
        return self._reader.reading(lambda db: list(rows(db.cursor(), sql, {"ids": ids})))

    def _metrics(self, project: str, run: str) -> Iterator[dict[str, Any]]:
        sql = f"SELECT {columns('metrics')} FROM metrics WHERE project = ? AND run = ?"
        found = self._reader.reading(lambda db: list(rows(db.cursor(), sql, [project, run])))
        for row in found:
            if self._cleaner is not None:
                row["name"] = self._cleaner.text(row["name"])
                for name in ("project", "run", "launch", "writer"):
                    row[name] = self._cleaner.name(row[name])
            yield row

    def _runs(self, ids: Path) -> set[tuple[str, str]]:
        sql = "SELECT DISTINCT project, run FROM rollouts WHERE id IN (SELECT unnest(?))"
        runs: set[tuple[str, str]] = set()
        with ids.open() as file:
            left = (line.strip() for line in file if line.strip())
            while some := list(islice(left, _MOST)):
                found = self._reader.reading(lambda db: db.cursor().execute(sql, [some]).fetchall())
                runs |= {(project, run) for project, run in found}
        return runs


class _Logs:
    """Lines of redacted rollouts and facts, as if each writer had its own log."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._lines: dict[int, int] = {}
        self.headers: dict[int, Header] = {}
        self.size = 0
        """Bytes of all lines."""

    def add(self, spool: Spool, stored: StoredRollout) -> None:
        rollout = stored.rollout
        log = self._log(rollout.project, rollout.run, rollout.launch, rollout.worker, stored.writer)
        self._put(spool, log, rollout_line(rollout, is_open=stored.is_open or None).encode())

    def add_facts(self, spool: Spool, found: list[dict[str, Any]]) -> None:
        for fact, writer in to_facts(found):
            log = self._log(None, None, None, None, writer)
            self._put(spool, log, facts_line([self._cleaner.fact(fact)]).encode())

    def _put(self, spool: Spool, log: int, text: bytes) -> None:
        self._lines[log] = spool.add(log, self._lines.get(log, 0), [text])
        self.size += len(text)

    def _log(self, *names: str | None) -> int:
        if names not in self._numbers:
            number = self._numbers[names] = len(self._numbers)
            project, run, launch, worker, writer = names
            self.headers[number] = Header(
                project=project, run=run, launch=launch, worker=worker,
                writer=self._cleaner.name(writer),
            )  # fmt: skip
        return self._numbers[names]


def _put(made: Path, target: Path) -> None:
    """Sync a file and move it to its place."""
    disk.sync(made)
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)
