"""`rollscope.open()`: everything that was recorded, to be read from Python.

>>> store = rollscope.open()                    # $ROLLSCOPE_DIR, else ~/.rollscope
>>> for row in store.rollouts("reward:<0.2 split:eval", order="-advantage", limit=50):
...     print(row.id, row.step, row.reward)
>>> rollout = store.get(row.id)                 # whole, with messages and tokens
>>> store.rollouts("fate:dropped").to_polars()
>>> store.sql("SELECT step, avg(reward) FROM rollouts GROUP BY step ORDER BY step").fetchall()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rollscope.model import Rollout

from . import guarded
from .compile import Query, compile_query
from .engine import Engine, Reader
from .order import DEFAULT_ORDER, parse_order
from .rows import COLUMNS
from .selection import Selection
from .sql import Sql
from .tables import Result


class Store:
    """All runs under one directory. Cheap to keep; each question sees what is new."""

    def __init__(
        self, dir: str | os.PathLike[str] | None = None, *, reader: Reader | None = None
    ) -> None:
        if reader is None:
            from importlib import import_module

            reader = import_module("rollscope.store.reader").Reader(dir)
        self.reader = reader
        self.engine = Engine(reader)

    def __repr__(self) -> str:
        return f"Store({getattr(self.reader, 'root', '')!s})"

    def runs(self) -> Any:
        """The runs, with their projects, counts and times."""
        self.reader.refresh()
        return self.reader.runs()

    def rollouts(
        self,
        query: str = "",
        *,
        order: str | Sequence[str] = DEFAULT_ORDER,
        limit: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> Selection:
        """The rollouts that a query finds (docs/query.md), newest first. Read when needed.

        `order`: keys, `-` before one for the greatest first: `"-advantage"`, `"step,index"`.
        `columns`: fewer are faster.
        """
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)} (known: {', '.join(COLUMNS)})")
        compiled = self.query(query)
        return Selection(self.engine, compiled, parse_order(order), limit, columns)

    def query(self, text: str) -> Query:
        """Compile a query and try its patterns, over the newest state of the store."""
        self.reader.refresh()
        compiled = compile_query(text)
        self.engine.check(compiled)
        return compiled

    def find(self, id: str) -> str:
        """The whole id of the rollout that an id, or the beginning of exactly one, names."""
        self.reader.refresh()
        exact = self.engine.rows(Sql('SELECT r."id" FROM rollouts r WHERE r."id" = ?', (id,)))
        if exact:
            return id
        like = 'SELECT DISTINCT r."id" FROM rollouts r WHERE starts_with(r."id", ?) LIMIT 4'
        found = sorted(row[0] for row in self.engine.rows(Sql(like, (id,)))) if id else []
        if not found:
            raise KeyError(f"no rollout {id!r}")
        if len(found) > 1:
            shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise KeyError(f"{id!r} is the beginning of several ids: {shown}")
        return str(found[0])

    def get(self, id: str) -> Rollout:
        """A whole rollout by its id, or by the beginning of it if that is one rollout's only."""
        self.reader.refresh()
        rollout = self.reader.get(id)
        if rollout is None:
            rollout = self.reader.get(self.find(id))
        if rollout is None:
            raise KeyError(f"no rollout {id!r}")
        return rollout

    def files(self, table: str) -> list[str]:
        """The exact list of Parquet files of a table, for other engines."""
        self.reader.refresh()
        return [str(path) for path in self.reader.files(table)]

    def sql(self, statement: str, params: Sequence[Any] = ()) -> Result:
        """Run one SELECT over the views `rollouts`, `messages`, `spans`, `facts`, `metrics`.

        Nothing can be written, no other file be read, no setting be changed.
        """
        self.reader.refresh()
        return guarded.run(self.reader.connection, statement, params)


def open(dir: str | os.PathLike[str] | None = None) -> Store:
    """Open a store: a directory, else `$ROLLSCOPE_DIR`, else `~/.rollscope`."""
    return Store(dir)
