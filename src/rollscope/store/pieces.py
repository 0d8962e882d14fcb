"""Rollouts with several rows: which row speaks for one, and how its pieces become one again.

A rollout that goes on in another log has a row in each. So has one that two processes logged
under the same key. Segments name the rollouts of which they hold only a piece (`continued`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tables import columns, one, thin

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BEST_ROW = "step IS NULL AND time IS NULL, open NULLS LAST, time DESC NULLS LAST"
"""ORDER BY: the row that speaks for a rollout comes first. One with a head of its own comes
before one without, a closed one before an open one, a later one before an earlier one."""


def found_again(db: DuckDBPyConnection, rows: str, others: str) -> set[str]:
    """The ids of thin rows that others have, too. A rollout keeps its step, so only what the
    others have of these steps is read: of a large store next to nothing."""
    least, most, without = db.execute(
        f"SELECT min(step), max(step), count(*) FILTER (step IS NULL) FROM {rows}"
    ).fetchall()[0]
    wanted = [f"step BETWEEN {least} AND {most}"] if least is not None else []
    wanted += ["step IS NULL"] if without else []
    found: set[str] = set()
    for where in wanted:
        sql = f"SELECT id FROM {others} WHERE {where} AND id IN (SELECT id FROM {rows})"
        found |= {id for (id,) in db.execute(sql).fetchall()}
    return found


def find_pieces(db: DuckDBPyConnection, rows: str) -> bool:
    """Note in `pieces` the ids that several of these thin rows share. Are there any?"""
    db.execute(
        "CREATE OR REPLACE TEMP TABLE pieces AS "
        f"SELECT id FROM {rows} GROUP BY id HAVING count(*) > 1"
    )
    return bool(one(db, "SELECT count(*) FROM pieces"))


def messages_once(messages: str) -> str:
    """SELECT of the messages of `pieces`. One that was written again, into the next log, is the
    same message."""
    return (
        f"SELECT {columns('messages')} FROM {messages} WHERE rollout IN (SELECT id FROM pieces) "
        "QUALIFY row_number() OVER (PARTITION BY rollout, n) = 1"
    )


def joined(rows: str, messages: str) -> str:
    """SELECT of one thin row a rollout: those in `pieces` are counted again, over all their
    messages."""
    names = columns("rollouts")
    heads = (
        f"(SELECT {names} FROM {rows} SEMI JOIN pieces USING (id) "
        f"QUALIFY row_number() OVER (PARTITION BY id ORDER BY {BEST_ROW}) = 1)"
    )
    return (
        f"SELECT {names} FROM {rows} ANTI JOIN pieces USING (id) UNION ALL "
        f"SELECT {names} FROM ({thin(heads, f'({messages_once(messages)})')})"
    )
