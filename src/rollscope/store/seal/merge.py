"""Building the parts of a merged directory: units joined, late facts folded in.

A part is made of many units, or is an old part again, with facts that came late. Facts move to the
part that holds their rollout. If there is no such rollout, they stay where they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from ...model import schema
from .. import disk, units
from ..fold import fold
from ..pieces import find_pieces, joined, messages_once
from ..scans import Scans
from ..tables import columns, ddl, literal
from ..units import Times, Unit, UnitInfo
from .segment import count, describe


class PlannedPart(NamedTuple):
    """A part to be made: its name, and the units it is made of."""

    name: str
    sources: tuple[Unit, ...]


class Merger:
    """Makes the parts of one merged directory."""

    def __init__(self, db: DuckDBPyConnection, parts: Sequence[PlannedPart]) -> None:
        self._db = db
        self._scans = Scans(db)
        self._find_late_facts(parts)

    def _find_late_facts(self, parts: Sequence[PlannedPart]) -> None:
        """`late`: facts that are not folded, with the part they lie in and the one they go to."""
        db = self._db
        db.execute(f"CREATE TEMP TABLE late (lies VARCHAR, goes VARCHAR, {ddl('facts')})")
        for part in parts:
            holding = [unit for unit in part.sources if unit.info.late_facts]
            relation = self._scans.relation("facts", holding)
            if relation is not None:
                db.execute(
                    f"INSERT INTO late BY NAME SELECT {literal(part.name)} AS lies, "
                    f"{columns('facts')} FROM {relation} WHERE folded IS NOT TRUE"
                )
        if not count(db, "late"):
            return
        for part in parts:
            relation = self._scans.relation("rollouts", part.sources)
            if relation is not None:
                db.execute(
                    f"UPDATE late SET goes = {literal(part.name)} WHERE rollout IN "
                    f"(SELECT id FROM {relation} WHERE id IN (SELECT rollout FROM late))"
                )

    def is_unchanged(self, part: PlannedPart) -> bool:
        """Is it one old part that no fact comes to or goes from?"""
        name = literal(part.name)
        moving = f"(lies = {name} AND goes IS NOT NULL) OR goes = {name}"
        return len(part.sources) == 1 and not count(self._db, "late", moving)

    def link(self, part: PlannedPart, target: Path) -> None:
        """The old part again, without copying anything."""
        _link_all(part.sources[0].directory, target, only=None)

    def build(self, part: PlannedPart, target: Path) -> None:
        """Write a part into `target` (a directory to be made)."""
        db, (first, *more) = self._db, part.sources
        # Bodies of an older version lack columns: they are written anew.
        old = None if more or first.info.columns != units.fingerprint() else first
        disk.make_dir(target)
        for table in schema.TABLES:
            relation = self._scans.relation(table, part.sources)
            assert relation is not None, "only whole units are merged"
            db.execute(f"CREATE OR REPLACE TEMP VIEW merged_{table} AS SELECT * FROM {relation}")
        self._gather_facts(part)
        self._gather_rollouts()
        sources = {
            "rollouts": "built",
            "messages": "built_messages",
            "spans": "merged_spans",
            "facts": "built_facts",
            "metrics": "merged_metrics",
        }
        if old is not None:  # only its facts changed: bodies stay the very same files
            for table in ("messages", "spans", "metrics"):
                disk.link(old.file(table), target / f"{table}.parquet")
        written = sources if old is None else {t: sources[t] for t in ("rollouts", "facts")}
        rows = units.write_tables(db, target, written, part=True)
        info = _info(part, rows if old is None else {**old.info.rows, **rows})
        info.files = {} if old is None else dict(old.info.files)
        info.files |= units.file_sums(target, written)
        for table in ("rollouts", "messages"):
            info.empty[table] = units.empty_columns(db, target / f"{table}.parquet")
        times = info.launches
        describe(db, info, sources)
        info.continued = self._still_continued(part)
        for launch, kept in times.items():
            info.launches[launch] = info.launches.get(launch, Times()) | kept
        for unit in part.sources:
            _link_all(unit.directory, target, only=units.KEPT_ASIDE)
        units.write_info(target, info)

    def _still_continued(self, part: PlannedPart) -> list[str]:
        """Rollouts that go on here and do not begin here either."""
        said = Counter(id for unit in part.sources for id in unit.info.continued)
        found = self._db.execute(
            "SELECT id, count(*) FROM merged_rollouts "
            "WHERE id IN (SELECT unnest($ids)) GROUP BY id",
            {"ids": sorted(said)},
        ).fetchall()
        return sorted(id for id, rows in found if rows <= said[id])

    def _gather_facts(self, part: PlannedPart) -> None:
        """`built_facts`: facts that were here and stay, and facts that move here."""
        name = literal(part.name)
        names = columns("facts", without=["folded"])
        self._db.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE built_facts AS
            SELECT {names}, true AS folded FROM merged_facts WHERE folded
            UNION ALL SELECT {names}, true FROM late WHERE goes = {name}
            UNION ALL SELECT {names}, false FROM late WHERE goes IS NULL AND lies = {name}
            """
        )

    def _gather_rollouts(self) -> None:
        """`built`: one row a rollout, its pieces joined and its facts folded in."""
        db = self._db
        rows = f"SELECT {columns('rollouts')} FROM merged_rollouts"
        messages = f"SELECT {columns('messages')} FROM merged_messages"
        if find_pieces(db, "merged_rollouts"):
            rows = joined("merged_rollouts", "merged_messages")
            messages += (
                " WHERE rollout NOT IN (SELECT id FROM pieces) "
                f"UNION ALL {messages_once('merged_messages')}"
            )
        db.execute(f"CREATE OR REPLACE TEMP TABLE whole AS {rows}")
        db.execute(f"CREATE OR REPLACE TEMP VIEW built_messages AS {messages}")
        db.execute(f"CREATE OR REPLACE TEMP TABLE built AS {fold('whole', 'built_facts')}")


def _info(part: PlannedPart, rows: dict[str, int]) -> UnitInfo:
    info = UnitInfo(version=schema.VERSION, columns=units.fingerprint(), logs={}, rows=rows)
    for unit in part.sources:
        info.logs |= unit.info.logs
        info.damaged += unit.info.damaged
        info.bad_lines += unit.info.bad_lines
        for launch, times in unit.info.launches.items():
            info.launches[launch] = info.launches.get(launch, Times()) | times
    return info


def _link_all(source: Path, target: Path, only: str | None) -> None:
    """Link the files of a unit (or of one directory in it) into another."""
    if only is not None:
        source, target = source / only, target / only
        if not source.is_dir():
            return
    if not target.is_dir():
        disk.make_dir(target)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            _link_all(path, target / path.name, only=None)
        else:
            disk.link(path, target / path.name)
