"""The five tables of `rollscope export parquet`, back to rollouts."""

from __future__ import annotations

import glob
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..model import Rollout
from ..model.schema import DERIVED, TABLES
from ..store.engine import connect
from ..store.read.bodies import stored
from ..store.tables import StoredRow, q, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 500
"""Rollouts that are in memory at once, at most."""
_BODIES = ("messages", "spans", "facts")
_KEEPS = ("label.", "flag.", "note")
"""Facts that are no fields of a rollout. `meta` keeps them."""


def is_five_tables(folder: Path) -> bool:
    return all(_shards(folder, table) for table in ("rollouts", "messages"))


def shards(folder: Path) -> list[Path]:
    """All files of the tables. What checks found is not read: it is found again."""
    return [file for table in (*TABLES, *DERIVED) for file in _shards(folder, table)]


def rollouts(folder: Path) -> Iterator[Rollout]:
    """Every rollout, a shard after the other. What belongs to it lies in the shard of its name."""
    with connect({"memory_limit": "1GB"}) as db:
        for file in _shards(folder, "rollouts"):
            left = _rows(db, "rollouts", file)
            while thin := list(islice(left, _BATCH)):
                yield from _whole(db, folder, file.name, thin)


def metrics(folder: Path) -> Iterator[tuple[int | None, dict[str, float]]]:
    """The numbers of the run; none if there are several, because whose they are is not kept."""
    files = _shards(folder, "metrics")
    with connect() as db:
        found = [row for file in files for row in _rows(db, "metrics", file)]
    if len({(row["project"], row["run"]) for row in found}) == 1:
        for row in found:
            if row["value"] is not None:
                yield row["step"], {str(row["name"]): float(row["value"])}


def _whole(
    db: DuckDBPyConnection, folder: Path, shard: str, thin: list[StoredRow]
) -> Iterator[Rollout]:
    ids = [row["id"] for row in thin]
    parts: dict[str, dict[str, list[StoredRow]]] = {}
    for table in _BODIES:
        parts[table] = defaultdict(list)
        file = folder / table / shard
        if file.is_file():
            for row in _rows(db, table, file, ids):
                parts[table][row["rollout"]].append(row)
    for row in thin:
        messages, spans, facts = (parts[table][row["id"]] for table in _BODIES)
        bodies = [f for f in facts if f["stream"] is not None or f["message"] is not None]
        yield _tagged(stored(row, messages, spans, bodies).rollout, facts)


def _tagged(rollout: Rollout, facts: list[StoredRow]) -> Rollout:
    """Labels, flags and notes are facts: in `meta` they say who said them."""
    kept = [
        {k: row[k] for k in ("name", "value", "message", "author", "time") if row[k] is not None}
        for row in facts
        if str(row["name"]).startswith(_KEEPS)
    ]
    if not kept or "facts" in rollout.meta:
        return rollout
    for fact in kept:
        if isinstance(fact.get("value"), str):
            fact["value"] = msgspec.json.decode(fact["value"])
    return msgspec.structs.replace(rollout, meta={**rollout.meta, "facts": kept})


def _shards(folder: Path, table: str) -> list[Path]:
    return sorted((folder / table).glob("*.parquet"))


def _rows(
    db: DuckDBPyConnection, table: str, file: Path, ids: list[str] | None = None
) -> Iterator[StoredRow]:
    """The rows of a file, or those of some rollouts. A column that it does not have, because it is
    older, is null."""
    cursor, values = db.cursor(), {"file": [glob.escape(str(file))]}
    found = rows(cursor, "DESCRIBE SELECT * FROM read_parquet($file)", values)
    there = {row["column_name"] for row in found}
    names = ", ".join(
        q(column.name) if column.name in there else f"NULL::{column.type} AS {q(column.name)}"
        for column in TABLES[table]
    )
    select = f"SELECT {names} FROM read_parquet($file)"
    if ids is None:
        return rows(cursor, select, values)
    select += " WHERE rollout IN (SELECT unnest($ids::VARCHAR[]))"
    return rows(cursor, select, {**values, "ids": ids})
