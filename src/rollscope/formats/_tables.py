"""A folder of Parquet files: rows pass through a file of JSON lines into the engine.

The engine turns them into columns, so that no other library is needed and no more than a few
thousand rows are in memory.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..model import Rollout
from ..store import disk
from ._encode import line
from ._export import ExportState, LineCount, Shard

SHARD = 128 << 20
"""Bytes of JSON after which a file ends, at the next end of a group."""


class TableRow(NamedTuple):
    """One row, and the files it belongs to."""

    file: str
    """The beginning of its files' names, inside the export's folder: `data/train`."""
    values: Mapping[str, Any]
    left_out: str | None = None
    """The part of the rollout that is not in it."""


class Tables:
    """Parquet files of one table, one per shard: `<file>-00000.parquet`."""

    def __init__(
        self,
        columns: Mapping[str, str],
        row: Callable[[Rollout], TableRow],
        finish: Callable[[Path, ExportState], None] | None = None,
    ) -> None:
        self._columns = columns
        self._row = row
        self._finish = finish

    def write(self, folder: Path, state: ExportState, shard: Shard) -> LineCount:
        out, spools = folder / "out", _Spools(folder)
        lines, left_out = 0, Counter[str]()
        for stored in shard.rollouts(lambda: spools.size > SHARD):
            row = self._row(stored.rollout)
            spools.add(row.file, line(row.values))
            lines += 1
            if row.left_out is not None:
                left_out[row.left_out] += 1
        for file, path in spools.close():
            target = out / f"{file}-{state.shards:05}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            to_parquet(path, self._columns, target, spools.longest)
            path.unlink()
        return LineCount(lines, left_out)

    def finish(self, folder: Path, state: ExportState) -> Path:
        out = folder / "out"
        out.mkdir(exist_ok=True)
        if self._finish is not None:
            self._finish(out, state)
        return out


class _Spools:
    """Files of JSON lines on their way to the engine, by the name of their table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}
        self.size = self.longest = 0

    def add(self, name: str, data: bytes) -> None:
        if name not in self._files:
            self._files[name] = (self._folder / f"{len(self._files)}.ndjson").open("wb")
        self._files[name].write(data + b"\n")
        self.size += len(data)
        self.longest = max(self.longest, len(data))

    def close(self) -> Iterator[tuple[str, Path]]:
        for name, file in self._files.items():
            file.close()
            yield name, Path(file.name)


def to_parquet(lines: Path, columns: Mapping[str, str], target: Path, longest: int = 0) -> None:
    """A file of JSON lines as a synced file of Parquet. A value that does not fit its column
    is an error: nothing is left out silently."""
    from ..store.engine import connect

    made = target.with_name(target.name + ".new")
    settings: dict[str, Any] = {
        "threads": 1,
        "memory_limit": "1GB",
        "temp_directory": str(lines.parent / "spill"),
        # Without this the engine ignores the size of row groups. One thread keeps the order.
        "preserve_insertion_order": False,
    }
    with connect(settings) as db:
        select = db.sql(
            "SELECT * FROM read_ndjson($path, columns = $columns, maximum_object_size = $longest, "
            "hive_partitioning = false)",
            params={
                "path": [glob.escape(str(lines))],
                "columns": dict(columns),
                "longest": max(16 << 20, longest + 1024),
            },
        )
        select.write_parquet(str(made), compression="zstd", row_group_size_bytes="16MB")
    disk.sync(made)
    made.replace(target)
