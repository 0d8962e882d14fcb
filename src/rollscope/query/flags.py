"""What checks answered, as SQL: a rollout is flagged, unobserved or clear by a check, or nobody
looked.

Findings are looked up by id, never joined into the view `rollouts`. The tables are those of
`store.read.found`. A flag that somebody annotated counts as found, and one annotated `false`
dismisses what a check found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .match import contains
from .sql import Sql, all_of, any_of
from .values import Text

if TYPE_CHECKING:
    from .compile import Query
    from .engine import Engine
    from .rows import Row

KEYS = ("flag", "unobserved", "clear")
"""Keys of the query language that are answered here. Each takes the id of a check."""


def holds(key: str, test: Text) -> Sql:
    """Does a check whose id passes the test give this answer about rollout `r`?"""
    if key == "flag":
        return _flagged(test)
    return all_of((_looked_up(key, test), Sql("({}) IS NOT TRUE").fill(_flagged(test))))


def has(key: str) -> Sql:
    """Does any check give this answer?"""
    if key == "flag":
        return any_of((Sql('len(r."flags") > 0'), Sql("r.id IN (SELECT rollout FROM flagged)")))
    if key == "unobserved":
        return Sql("r.id IN (SELECT rollout FROM checked WHERE len(unobserved) > 0)")
    return Sql("r.id IN (SELECT c.rollout FROM {})").fill(_CLEAR)


def _flagged(test: Text) -> Sql:
    annotated = Sql('len(list_filter(r."flags", lambda x: {})) > 0').fill(_is(Sql("x"), test))
    if test.kind == "exact":
        annotated = Sql('list_contains(r."flags", ?)', (test.text,))
    found = Sql("r.id IN (SELECT rollout FROM flagged WHERE {})").fill(_is(Sql('"check"'), test))
    return any_of((annotated, found))


_CLEAR = Sql(
    "flags.rows c JOIN flags.looked l ON l.unit = c.unit AND l.subject = c.subject "
    'WHERE NOT list_contains(c.unobserved, l."check") AND (NOT list_contains(c.found, l."check") '
    'OR (l."check", c.rollout) IN (SELECT ("check", rollout) FROM flags.dismissed))'
)


def _looked_up(key: str, test: Text) -> Sql:
    if key == "clear":
        among = Sql("r.id IN (SELECT c.rollout FROM {} AND {})")
        return among.fill(_CLEAR, _is(Sql('l."check"'), test))
    member = Sql("len(list_filter(unobserved, lambda x: {})) > 0").fill(_is(Sql("x"), test))
    if test.kind == "exact":
        member = Sql("list_contains(unobserved, ?)", (test.text,))
    return Sql("r.id IN (SELECT rollout FROM checked WHERE {})").fill(member)


def _is(value: Sql, test: Text) -> Sql:
    return (
        Sql("{} = ?", (test.text,)).fill(value) if test.kind == "exact" else contains(value, test)
    )


def added(engine: Engine, rows: Iterable[tuple[str, Row | None]]) -> None:
    """Add what checks found to the flags of some rows, each with its id: those of one page."""
    if not engine.reader.found.any:
        return
    wanted = {id: row for id, row in rows if row is not None and "flags" in row}
    if not wanted:
        return
    sql = Sql(
        'SELECT rollout, list("check") FROM flagged WHERE rollout IN (SELECT unnest(?)) GROUP BY 1',
        (list(wanted),),
    )
    for id, found in engine.rows(sql):
        wanted[id].add_flags(found)


ALL_FLAGS = """list_sort(list_distinct(list_concat(coalesce(r."flags", []), coalesce(
    (SELECT list("check") FROM flagged WHERE rollout = r.id), []))))"""
"""The same as an expression, for all rows of a selection at once."""


def ids(engine: Engine, query: Query, key: str) -> list[tuple[str, int]]:
    """The checks that may stand behind a key, each with a count: those found, the commonest first;
    for the other keys, those that have looked."""
    if key == "flag":
        found = [(id, n) for id, n in counted(engine, query) if id is not None]
        return sorted(found, key=lambda item: (-item[1], item[0]))
    looked = 'SELECT "check", count(*) FROM flags.looked GROUP BY 1 ORDER BY 1'
    return [(id, n) for id, n in engine.rows(Sql(looked))]


def counted(engine: Engine, query: Query) -> list[tuple[str | None, int]]:
    """How many rollouts of a selection have each flag, and how many (None) have none."""
    from .engine import select  # which compiles queries, and so knows this module

    chosen = select(query, Sql('r."id" AS id, r."flags" AS flags'))
    sql = Sql(
        "WITH chosen AS MATERIALIZED ({}), every AS MATERIALIZED ("
        "SELECT id, unnest(flags) AS entry FROM chosen UNION "
        'SELECT rollout, "check" FROM flagged WHERE rollout IN (SELECT id FROM chosen)) '
        "SELECT entry, count(*) FROM every GROUP BY 1 UNION ALL "
        "SELECT NULL, (SELECT count(*) FROM chosen) - (SELECT count(DISTINCT id) FROM every)"
    )
    return [(entry, n) for entry, n in engine.rows(sql.fill(chosen)) if n]
