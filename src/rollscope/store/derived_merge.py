"""Many small units of findings become one, so that readers open few files.

Units whose checks were the same become one. Those that hold nothing but outdated rows go with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from duckdb import DuckDBPyConnection

from . import derived, scans
from .derived import (
    MERGED,
    Broken,
    CheckStamp,
    DerivedInfo,
    DerivedUnit,
    DerivedWriter,
    by_subject,
    columns,
    read,
)
from .tables import literal, one

KEY = "coalesce(rollout, concat('step ', split, ' ', step))"
"""What a row is about, within its run and subject."""

UNIT = "parse_dirpath(filename)"


def merge(
    db: DuckDBPyConnection, run: Path, units: Sequence[DerivedUnit], off: Iterable[str] = ()
) -> bool:
    """Merge the units of a run if they are many, or if they hold findings of checks that are `off`.

    Did it?
    """
    derived.sweep(run)
    ordered = sorted(units, key=lambda unit: unit.age)
    if not ordered:
        return False
    newest: dict[str, dict[str, CheckStamp]] = {}
    for unit in ordered:
        newest |= by_subject(unit.info.checks)
    digest = max(unit.info.digest for unit in ordered)
    same = [u for u in ordered if _is_of_today(u.info, newest, digest)]
    checks = {id: stamp for stamps in newest.values() for id, stamp in stamps.items()}
    dropped = set(off) & checks.keys()
    if len(ordered) <= derived.MANY and not dropped:
        return False
    _rank(db, ordered)
    rows = f"(SELECT {UNIT} AS unit, * FROM {read('checked', same, filename=True)})"
    db.execute(
        "CREATE OR REPLACE TEMP TABLE newest AS SELECT unit, subject, "
        f"{KEY} AS key FROM {rows} JOIN ages USING (unit) "
        "QUALIFY row_number() OVER (PARTITION BY subject, key ORDER BY place DESC) = 1"
    )
    gone = [u for u in ordered if u in same or _is_outdated(db, u)]
    info = DerivedInfo(
        order=max(unit.info.order for unit in same),
        checks={id: stamp for id, stamp in checks.items() if id not in dropped},
        digest=digest,
        covers=sorted({n for u in gone for n in (u.directory.name, *u.info.covers)}),
        broken=_broken(same),
    )
    mine = "(d.unit, d.subject, d.key) IN (SELECT (unit, subject, key) FROM newest)"
    listed = ", ".join(map(literal, sorted(dropped))) or "''"
    kept = f"* REPLACE (list_filter(found, lambda x: x NOT IN ({listed})) AS found, "
    kept += f"list_filter(unobserved, lambda x: x NOT IN ({listed})) AS unobserved)"
    sources = {"checked": f"(SELECT {kept} FROM {_keyed('checked', same)} d WHERE {mine})"}
    told = _keyed("findings", same)
    sources["findings"] = f'(SELECT * FROM {told} d WHERE {mine} AND "check" NOT IN ({listed}))'
    writer = DerivedWriter(run, MERGED, derived.next_merged(run))
    return writer.merge(db, sources, info)


def _is_of_today(info: DerivedInfo, newest: dict[str, dict[str, CheckStamp]], digest: int) -> bool:
    """Did the same checks look as in the newest units?"""
    mine = by_subject(info.checks)
    return info.digest == digest and all(newest[subject] == mine[subject] for subject in mine)


def _rank(db: DuckDBPyConnection, ordered: Sequence[DerivedUnit]) -> None:
    """`ages`: the place of each unit, the oldest first."""
    db.execute("CREATE OR REPLACE TEMP TABLE ages (unit VARCHAR, place INTEGER)")
    rows = [[str(unit.directory), place] for place, unit in enumerate(ordered)]
    db.executemany("INSERT INTO ages VALUES (?, ?)", rows)


def _keyed(table: str, units: Sequence[DerivedUnit]) -> str:
    """The rows of a table, each with its unit and what it is about."""
    source = read(table, units, filename=True)
    if source is None:
        source = scans.read([units[0].file(table)], filename=True)
    return f"(SELECT {UNIT} AS unit, {KEY} AS key, {columns(table)} FROM {source})"


def _is_outdated(db: DuckDBPyConnection, unit: DerivedUnit) -> bool:
    """Is there a newer row about everything in this unit?"""
    source = read("checked", [unit])
    if source is None:
        return True
    sql = (
        f"SELECT count(*) FROM (SELECT subject, {KEY} AS key FROM {source}) "
        "ANTI JOIN newest USING (subject, key)"
    )
    return not one(db, sql)


def _broken(units: Iterable[DerivedUnit]) -> dict[str, Broken]:
    found: dict[str, Broken] = {}
    for unit in units:
        for id, broken in unit.info.broken.items():
            before = found[id].count if id in found else 0
            found[id] = Broken(before + broken.count, broken.error, broken.rollout)
    return found
