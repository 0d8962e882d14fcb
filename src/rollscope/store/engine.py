"""The reader's engine: how it is set up, confined and taken down; what its errors mean."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from .tables import literal, path_literal
from .writers import has_ended, place, process_start

Configuration = dict[str, str | bool | int | float | list[str]]


def connect(config: Configuration | None = None) -> DuckDBPyConnection:
    """A new engine in memory. It prints nothing: its own progress bar goes to standard output,
    where programs and `--json` write what others read."""
    database = duckdb.connect(config=config or {})
    database.execute("SET enable_progress_bar = false")  # holds for its cursors, too
    return database


def configuration(temporary: Path, threads: int | None, memory: int | None = None) -> Configuration:
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    config: Configuration = {
        "memory_limit": f"{memory or max(1 << 30, there * 4 // 10)}B",
        "temp_directory": str(temporary / "spill"),
        "autoinstall_known_extensions": False,
        # A filter by up to so many ids skips the rows of others before their text is read:
        # 20 instead of 970 ms for 512 rollouts out of 100,000. The engine's default is 50.
        "dynamic_or_filter_threshold": 20_000,
        # Up to so many rows are sorted without their other columns. The engine's default is 50.
        "late_materialization_max_rows": 2_100,
    }
    return config | ({"threads": threads} if threads else {})


def confine(database: DuckDBPyConnection, directories: Sequence[Path | str]) -> None:
    """SQL that people write reads these directories and nothing else, whatever it says."""
    allowed = ", ".join(f(d) for d in directories for f in (literal, path_literal))
    database.execute(f"SET allowed_directories = [{allowed}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def scratch() -> Path:
    """A temporary directory for a reader of this process. Those of readers that were killed go."""
    here = f"rollscope-{hashlib.blake2b(place().encode(), digest_size=4).hexdigest()}"
    for left in Path(tempfile.gettempdir()).glob(f"{here}-*-*-*"):
        pid, start = left.name.split("-")[2:4]
        if pid.isdecimal() and has_ended(int(pid), start or None):
            shutil.rmtree(left, ignore_errors=True)
    mine = f"{os.getpid()}-{process_start(os.getpid()) or ''}"
    return Path(tempfile.mkdtemp(prefix=f"{here}-{mine}-"))


def clean_up(database: DuckDBPyConnection, temporary: Path) -> None:
    with contextlib.suppress(duckdb.Error):  # a thread is still reading: it goes with the process
        database.close()
    shutil.rmtree(temporary, ignore_errors=True)


FAILURES = (duckdb.Error, FileNotFoundError, UnicodeDecodeError)
"""What a query raises. The engine does not look at the letters of JSON: Python finds those that are
damaged."""

_OF_A_FILE = (
    "parquet", "protocol", "decompress", "zstd", "corrupt", "file", "unicode", "stats", "json",
    "map key",
)  # fmt: skip


def is_of_a_file(error: Exception) -> bool:
    """Can it be that a file vanished or is damaged? Else the query itself is wrong."""
    if isinstance(error, (duckdb.IOException, FileNotFoundError, UnicodeDecodeError)):
        return True
    if type(error) is duckdb.Error:  # no kind of its own, such as "Out of buffer": a library's
        return True
    said = str(error).lower()
    return isinstance(error, duckdb.InvalidInputException) and any(w in said for w in _OF_A_FILE)
