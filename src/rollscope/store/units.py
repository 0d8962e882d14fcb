"""Sealed units: directories with five Parquet files and `segment.json`.

A segment is a unit made of one log; a part of `merged/<n>/` is a unit made of many. A unit
never changes after the rename that put it in its place.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from ..model import schema
from ..model.known import known
from . import disk, paths, small
from .tables import columns, literal, path_literal

if TYPE_CHECKING:  # writers look at units too, and must not load the engine
    from duckdb import DuckDBPyConnection

INFO = "segment.json"
KEPT_ASIDE = "damaged"
"""Directory of a unit that holds, as they were found, the bytes that were no good frames."""

ROW_GROUP = "ROW_GROUP_SIZE_BYTES '8MB'"
"""Measured: ten 50 kB messages are fetched in 13 ms; with the engine's default in 90 to 177."""

THIN_ROW_GROUP = "ROW_GROUP_SIZE 2048"
"""Measured: 50 rows from anywhere among a million cost a third of what they do with 8,192."""

FINDABLE = (
    "DICTIONARY_SIZE_LIMIT 2048, STRING_DICTIONARY_PAGE_SIZE_LIMIT 131072, "
    "BLOOM_FILTER_FALSE_POSITIVE_RATIO 0.05"
)
"""Thin rows of a part: ids in a dictionary, to which the engine adds a Bloom filter. Measured:
one of a million ids that are hashes is found in 6 ms of CPU instead of 62, for 5 bytes each."""

SORTED = '"step", "group", "index", "id"'
"""Order of rollouts: siblings lie next to each other, and compress so."""


Trouble = Callable[["Path", "FileSum | None"], "str | None"]
"""What is wrong with a table at first sight, given its checksums; None: nothing."""


def fingerprint() -> str:
    """Names and types of all columns, in short: files that share it are read in one go."""
    text = repr([[(c.name, c.type) for c in table] for table in schema.TABLES.values()])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Times(msgspec.Struct, omit_defaults=True):
    """When a launch began and when it last wrote, Unix seconds."""

    begin: float | None = None
    last: float | None = None

    def __or__(self, other: Times) -> Times:
        begins = [t.begin for t in (self, other) if t.begin is not None]
        lasts = [t.last for t in (self, other) if t.last is not None]
        return Times(min(begins, default=None), max(lasts, default=None))


class FileSum(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was written: so that damage shows that leaves it readable."""

    size: int
    footer: str
    """CRC-32 of the end of the file, from the footer on."""
    whole: str
    """CRC-32 of all of it."""


class BadRange(msgspec.Struct):
    """Bytes of a log that are no good frame."""

    log: str
    offset: int
    end: int
    error: str


@known
class UnitInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`segment.json`."""

    version: int
    """Version of the format."""
    columns: str | None = None
    """`fingerprint` of the program that wrote it."""
    logs: dict[str, int]
    """The logs it is made of, and how many bytes of each it took."""
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows of each table."""
    files: dict[str, FileSum] = msgspec.field(default_factory=dict)
    """Checksums of its tables, by file name."""
    launches: dict[str, Times] = msgspec.field(default_factory=dict)
    continued: list[str] = msgspec.field(default_factory=list)
    """Rollouts that began in a log outside this unit, or were logged there, too."""
    late_facts: int = 0
    """Facts that are not folded: their rollouts lie outside this unit."""
    late_spans: int = 0
    """Spans whose rollouts lie outside this unit."""
    empty: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Columns in which nothing stands, by table, where that is known: they need not be read."""
    damaged: list[BadRange] = msgspec.field(default_factory=list)
    bad_lines: int = 0
    """Lines of good frames that are no JSON."""


class Unit(NamedTuple):
    directory: Path
    info: UnitInfo
    tables: tuple[str, ...]
    """The tables whose files can be opened."""

    @property
    def last(self) -> float:
        """When anything of it was last written, Unix seconds."""
        return max((t.last for t in self.info.launches.values() if t.last is not None), default=0.0)

    def file(self, table: str) -> Path:
        return self.directory / f"{table}.parquet"


def read_unit(
    directory: Path, problems: dict[str, str], trouble_of: Trouble | None = None
) -> Unit | None:
    """A unit as it lies there; what is wrong with it is added to `problems`, by path.

    `trouble_of`: `parquet_trouble`, or the same of tables that lie elsewhere. None: it is not there
    (any more), or nothing in it can be read.
    """
    trouble_of = trouble_of or parquet_trouble
    path = directory / INFO
    info, why = None, ""
    try:
        info = small.load(path, UnitInfo)
    except (OSError, ValueError) as error:
        why = f"cannot be read ({error}); what it said is worked out from the files"
    found = []
    for table in schema.TABLES:
        file = f"{table}.parquet"
        trouble = trouble_of(directory / file, info.files.get(file) if info else None)
        if trouble is None:
            found.append(table)
        else:
            problems[str(directory / file)] = f"{trouble}; its rows are not shown"
    if paths.is_gone(directory):
        return None  # it vanished while we looked
    if info is None:
        problems[str(path)] = why
        info = UnitInfo(version=schema.VERSION, logs={}, late_facts=1, late_spans=1)
    return Unit(directory, info, tuple(found))


def file_sum(path: Path) -> FileSum:
    """The checksums of a Parquet file."""
    with small.open_regular(path) as file:
        size = file.seek(0, 2)
        footer = zlib.crc32(_footer(file, size))
        whole = file.seek(0)
        while piece := file.read(1 << 20):
            whole = zlib.crc32(piece, whole)
    return FileSum(size, f"{footer:08x}", f"{whole:08x}")


def _footer(file: BinaryIO, size: int) -> bytes:
    """The end of a Parquet file, from the footer on; nothing if it is not as long as it says."""
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = struct.unpack("<I4s", end)[0] + 8 if len(end) == 8 else size + 1
    if length > size - 4:
        return b""
    file.seek(size - length)
    return file.read(length)


def file_sums(directory: Path, tables: Iterable[str]) -> dict[str, FileSum]:
    """The checksums of the files of these tables, by name."""
    names = [f"{table}.parquet" for table in tables]
    return {name: file_sum(directory / name) for name in names}


def parquet_trouble(path: Path, said: FileSum | None = None) -> str | None:
    """What is wrong with a Parquet file at first sight (its two ends); None: nothing."""
    try:
        with small.open_regular(path) as file:
            size = file.seek(0, 2)
            if size < 12:
                return "cut off"
            file.seek(0)
            begin, footer = file.read(4), _footer(file, size)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    if begin != b"PAR1" or (footer and not footer.endswith(b"PAR1")):
        return "no Parquet file, or cut off, or filled with zeros"
    if not footer:
        return "damaged (its footer is longer than the file)"
    if said is not None and (size, f"{zlib.crc32(footer):08x}") != (said.size, said.footer):
        return "damaged (the checksum of its footer does not fit)"
    return None


def write_tables(
    db: DuckDBPyConnection, directory: Path, sources: dict[str, str], *, part: bool = False
) -> dict[str, int]:
    """Write tables, each from its relation, sorted and synced. Returns the rows of each.

    `sources["rollouts"]` must be a table: the others are sorted by its order. A `part` is
    written for being read often, a segment for being written at little cost.
    """
    db.execute(
        "CREATE OR REPLACE TEMP TABLE sorted AS SELECT id AS rollout, "
        f"row_number() OVER (ORDER BY {SORTED}) AS place FROM {sources['rollouts']}"
    )
    orders = {
        "rollouts": SORTED,
        "messages": "s.place, t.rollout, t.n",
        "spans": "s.place, t.rollout, t.n",
        "facts": "s.place, t.rollout, t.time, t.writer, t.n",
        "metrics": "t.step, t.time, t.name",
    }
    rows = {}
    for table, source in sources.items():
        joined = table in ("messages", "spans", "facts")
        select = (
            f"SELECT {columns(table, prefix='t.')} FROM {source} t "
            + ("LEFT JOIN sorted s USING (rollout) " if joined else "")
            + f"ORDER BY {orders[table]}"
        )
        groups = THIN_ROW_GROUP if table == "rollouts" else ROW_GROUP
        if part and table == "rollouts":
            groups = f"{groups}, {FINDABLE}"
        rows[table] = copy(db, select, directory / f"{table}.parquet", groups)
    return rows


def empty_columns(db: DuckDBPyConnection, path: Path) -> list[str]:
    """The columns of a file in which nothing stands."""
    # The footer counts an empty list as nothing, too: those that it names are looked at.
    told = db.execute(
        f"SELECT string_split(path_in_schema, ', ')[1] FROM parquet_metadata({path_literal(path)}) "
        "GROUP BY 1 HAVING bool_and(coalesce(stats_null_count = num_values, false)) ORDER BY 1"
    ).fetchall()
    if not told:
        return []
    counts = ", ".join(f'count("{name}")' for (name,) in told)
    found = db.execute(f"SELECT {counts} FROM read_parquet({path_literal(path)})").fetchall()[0]
    return [name for (name,), count in zip(told, found, strict=True) if not count]


def copy(db: DuckDBPyConnection, select: str, path: Path, groups: str) -> int:
    """Write the rows of a SELECT as one Parquet file and sync it. Returns their number."""
    disk.before("copy", path)
    result = db.execute(
        f"COPY ({select}) TO {literal(path)} (FORMAT parquet, COMPRESSION zstd, "
        f"COMPRESSION_LEVEL 3, {groups}, KV_METADATA {{rollscope: '{schema.VERSION}'}})"
    ).fetchone()
    disk.sync(path)
    return int(result[0]) if result else 0


def write_info(directory: Path, info: UnitInfo) -> None:
    """Write `segment.json`, the last file of a unit before its commit."""
    disk.write(directory / INFO, small.pack(info))
    disk.sync(directory)
