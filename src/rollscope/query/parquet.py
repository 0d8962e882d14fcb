"""Write a selection as Parquet: the five tables, in the same open format as the store."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from rollscope.model.schema import TABLES

from .compile import Query
from .engine import Engine, select
from .sql import Sql

_OPTIONS = "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)"


def write(engine: Engine, query: Query, folder: Path) -> int:
    """`rollouts.parquet`, `messages.parquet`, ... of what a query finds. Returns how many.

    Metrics are those of the runs that the rollouts belong to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    db = engine.reader.connection.cursor()
    try:
        ids = select(query, Sql('r."id", r."project", r."run"'))
        db.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {ids.text}", ids.bound())
        for table in TABLES:
            # The engine may write nowhere but in its own directory: each file moves from there.
            made = engine.reader.temporary / f"{table}-{uuid.uuid4()}.parquet"
            path = str(made).replace("'", "''")
            db.execute(f"COPY ({_chosen(table)}) TO '{path}' {_OPTIONS}")
            shutil.move(made, folder / f"{table}.parquet")
        count = int(db.execute("SELECT count(*) FROM chosen").fetchall()[0][0])
        db.execute("DROP TABLE chosen")
        return count
    finally:
        db.close()


def _chosen(table: str) -> str:
    columns = ", ".join(f't."{column.name}"' for column in TABLES[table])
    chosen = {
        "rollouts": "t.id IN (SELECT id FROM chosen)",
        "metrics": "(t.project, t.run) IN (SELECT (project, run) FROM chosen)",
    }.get(table, "t.rollout IN (SELECT id FROM chosen)")
    order = {
        "rollouts": 't.step, t."group", t.index, t.id',
        "messages": "t.rollout, t.n",
        "spans": "t.rollout, t.start",
        "facts": "t.rollout, t.time, t.n",
        "metrics": "t.project, t.run, t.step, t.name",
    }[table]
    return f"SELECT {columns} FROM {table} t WHERE {chosen} ORDER BY {order}"
