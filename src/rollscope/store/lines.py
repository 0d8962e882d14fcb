"""Lines of logs on their way into the engine: the temporary table `staged_lines`.

The engine itself reads an undamaged log. Everything else goes through a `Spool`: pieces of many
logs at once, and the good frames of damaged logs.
"""

from __future__ import annotations

import glob
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .tables import LINE, one

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LONGEST = 16 << 20  # the engine's own limit of a line; longer ones must be announced


class Spool:
    """Lines of any number of logs, numbered, as one NDJSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.longest = 0
        self.lines: Counter[int] = Counter()
        """Lines of each log, good or not."""
        self.spooled = 0
        """Lines that the engine must find."""
        self._file: BinaryIO = path.open("wb")

    def add(self, log: int, number: int, lines: list[bytes]) -> int:
        """Add lines of a log, the first of them having this number; returns the next number."""
        objects = [
            b'{"log":%d,"line":%d,%b\n' % (log, n, line[1:])
            for n, line in enumerate(lines, number)
            if line[:1] == b"{" and len(line) > 2
        ]
        self._file.writelines(objects)
        self.spooled += len(objects)
        self.longest = max(self.longest, *map(len, lines), 0)
        self.lines[log] += len(lines)
        return number + len(lines)

    def load(self, db: DuckDBPyConnection) -> Counter[int]:
        """Read them. Returns, for each log, how many lines are no JSON objects."""
        self.close()
        _read(db, "*", self.path, LINE, self.longest)
        good = db.execute(
            "SELECT log, count(*) FROM staged_lines WHERE line IS NOT NULL GROUP BY log"
        )
        return self.lines - Counter(dict(good.fetchall()))

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


def load_log(db: DuckDBPyConnection, path: Path, longest: int) -> int:
    """Read a whole undamaged log as it lies, its lines in order. Returns how many are records."""
    written = {name: type for name, type in LINE.items() if name != "line"} | {"log": "JSON"}
    picked = f"0::{LINE['log']} AS log, row_number() OVER () - 1 AS line, * EXCLUDE (log)"
    kinds = " OR ".join(f"{name} IS NOT NULL" for name in ("rollout", "more", "facts", "metrics"))
    _read(db, f"{picked}, log IS NOT NULL OR {kinds} AS is_good", path, written, longest)
    return int(one(db, "SELECT count(*) FILTER (is_good) FROM staged_lines"))


def _read(
    db: DuckDBPyConnection, picked: str, path: Path, columns: dict[str, str], longest: int
) -> None:
    # The engine would guess the compression by what it takes for the ending of the name.
    values = {
        "path": [glob.escape(str(path))],
        "columns": columns,
        "longest": max(_LONGEST, longest + 1024),
        "compression": "zstd" if path.suffix == ".zst" else "uncompressed",
    }
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE staged_lines AS SELECT {picked} FROM read_ndjson($path, "
        "columns = $columns, ignore_errors = true, maximum_object_size = $longest, "
        "hive_partitioning = false, compression = $compression)",
        values,
    )
