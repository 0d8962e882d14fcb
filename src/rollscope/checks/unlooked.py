"""What nobody has looked at yet, as it is now: rollouts and groups whose signature is another.

A rollout's signature says how many messages it has, whether it is still open, and which facts came
about it; people's labels, judges' verdicts and rescores are no news to a check. A group's signature
is made of its members', and of whether more of them may come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from ..model.grouping import GROUP, IS_ALONE
from ..query.compile import Query
from ..query.engine import with_hits
from ..query.sql import Sql
from ..store.derived import CheckStamp, DerivedUnit
from .digest import VERSION as DIGEST
from .look import is_current

NO_NEWS = ("label.", "flag.", "judge.", "rescored.")
"""Facts whose names begin so are no reason to look again; nor are notes."""

_SAID = f"""SELECT rollout, count(*) AS n, max("time") AS last FROM facts
    WHERE name <> 'note' AND NOT ({" OR ".join(f"starts_with(name, '{n}')" for n in NO_NEWS)})
    GROUP BY rollout"""

SIGNATURE = """concat_ws('/', r."messages", CASE WHEN r."open" THEN 'open' END, s.n,
    round(s.last, 3))"""
"""Of the rollout `r` with its facts `s`."""


Place = tuple[str, str]
"""Project and name of a run."""


class Unlooked(NamedTuple):
    """A rollout that is to be looked at."""

    place: Place
    id: str
    signature: str
    messages: int
    again: bool
    """Was it looked at before, as it was then or by other checks?"""


def rollouts(db: DuckDBPyConnection, query: Query, current: Sequence[str]) -> list[Unlooked]:
    """Rollouts of a selection, run by run, the newest step first.

    `current`: the units that were made by the checks of today.
    """
    sql = Sql(
        f"WITH said AS ({_SAID}), looked AS ({_looked('rollout')}) "
        f'SELECT r."project", r."run", r.id, {SIGNATURE}, coalesce(r."messages", 0), '
        "l.rollout IS NOT NULL FROM rollouts r "
        "LEFT JOIN said s ON s.rollout = r.id LEFT JOIN looked l ON l.rollout = r.id "
        f"WHERE {SIGNATURE} IS DISTINCT FROM l.signature AND {{}} "
        'ORDER BY 1, 2, r."step" DESC NULLS LAST, r.id',
        (list(current),),
    )
    sql = with_hits(query, sql.fill(query.where))
    found = db.execute(sql.text, sql.bound()).fetchall()
    return [Unlooked((project, run), *row) for project, run, *row in found]


def places(db: DuckDBPyConnection, query: Query) -> set[Place]:
    """The runs of a selection."""
    sql = Sql('SELECT DISTINCT r."project", r."run" FROM rollouts r WHERE {}').fill(query.where)
    sql = with_hits(query, sql)
    return {(project, run) for project, run in db.execute(sql.text, sql.bound()).fetchall()}


def _looked(subject: str) -> str:
    """What the newest rows about a subject say; the signature is null if it does not count."""
    return (
        "SELECT rollout, CASE WHEN unit IN (SELECT unnest(?::VARCHAR[])) THEN signature END "
        f"AS signature FROM flags.rows WHERE subject = '{subject}'"
    )


class UnlookedGroup(NamedTuple):
    """A group that is to be looked at."""

    place: Place
    ids: list[str]
    """Its members, in the order of their index."""
    signature: str
    is_settled: bool
    """Will no more members come?"""
    again: int
    """Members that were looked at before."""


_ALONE = f"CASE WHEN {IS_ALONE} THEN r.id END"

_GROUPS = f"""
WITH own AS ({_looked("rollout")}), old AS ({_looked("group")}),
members AS (
    SELECT r.*, own.signature AS own, old.signature AS old, old.rollout IS NOT NULL AS again,
        p.is_live, max(r."step") OVER (PARTITION BY r."project", r."run", r."split") AS newest
    FROM rollouts r JOIN places p ON p.project = r."project" AND p.run = r."run"
    LEFT JOIN own ON own.rollout = r.id LEFT JOIN old ON old.rollout = r.id
    WHERE NOT r.superseded AND r."open" IS NOT TRUE
),
groups AS (
    SELECT any_value(r."project") AS project, any_value(r."run") AS run,
        list(r.id ORDER BY r."index" NULLS LAST, r.id) AS ids,
        bool_and(NOT is_live OR coalesce(r."step" < newest, false)) AS is_settled,
        count(*) FILTER (again) AS again, count(own) AS looked, count(*) AS size,
        min(old) AS old, count(DISTINCT old) AS olds, count(old) AS remembered,
        md5(string_agg(concat(r.id, ' ', own), ' ' ORDER BY r.id)) AS members
    FROM members r GROUP BY {GROUP}, {_ALONE}
)
SELECT project, run, ids, concat(members, CASE WHEN is_settled THEN '' ELSE '~' END) AS signature,
    is_settled, again
FROM groups WHERE looked = size
    AND NOT (olds = 1 AND remembered = size AND old = signature)
"""


def groups(
    db: DuckDBPyConnection,
    places: Mapping[Place, bool],
    current: tuple[Sequence[str], Sequence[str]],
) -> list[UnlookedGroup]:
    """Groups of which every member was looked at.

    `places`: the runs, and whether each is being written: then its newest step is not over.
    `current`: the units made by the checks of today, of rollouts and of groups.
    """
    db.execute(
        "CREATE OR REPLACE TEMP TABLE places AS SELECT unnest(?::VARCHAR[]) AS project, "
        "unnest(?::VARCHAR[]) AS run, unnest(?::BOOLEAN[]) AS is_live",
        [[project for project, _ in places], [run for _, run in places], list(places.values())],
    )
    found = db.execute(_GROUPS, [*map(list, current)]).fetchall()
    return [UnlookedGroup((project, run), *row) for project, run, *row in found]


def current_units(units: Iterable[DerivedUnit], wanted: Mapping[str, CheckStamp]) -> list[str]:
    """The units whose answers are what these checks of one subject would say today."""
    return [
        str(unit.directory)
        for unit in units
        if is_current(unit.info.checks, wanted) and unit.info.digest >= DIGEST
    ]
