"""Rollouts whose sealed row is out of date: some facts are not folded in yet, or the rollout goes
on in another log.

Their current rows stand in `tail.patched`, and the view leaves the old ones out. Only these
rollouts cost anything, and only those that changed are looked at again.

`tail.late` holds the unfolded facts of sealed units, without streams.
"""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from ...model import schema
from ..fold import fold
from ..pieces import find_pieces, found_again, joined
from ..scans import Scans
from ..tables import columns, ddl, literal, one
from ..units import Unit

_FACTS = [c.name for c in schema.FACTS if c.name != "stream"]


class Late:
    """Keeps `tail.patched` true. Used by one thread at a time, inside a transaction."""

    def __init__(self, db: DuckDBPyConnection, scans: Scans) -> None:
        self._db = db
        self._scans = scans
        self.continued: dict[str, set[str]] = {}
        """Rollouts that began elsewhere, by unit."""
        self._live: set[str] = set()
        """Rollouts of the tail that began in a sealed log, or were logged there, too."""
        db.execute(f"CREATE TABLE tail.patched ({ddl('rollouts')})")
        db.execute("CREATE TABLE tail.homes (id VARCHAR, source VARCHAR)")
        db.execute(f"CREATE TABLE tail.late (unit VARCHAR, {ddl('facts')})")
        db.execute("ALTER TABLE tail.late DROP COLUMN stream")

    def snapshot(self) -> tuple[dict[str, set[str]], set[str]]:
        return dict(self.continued), set(self._live)

    def restore(self, kept: tuple[dict[str, set[str]], set[str]]) -> None:
        self.continued, self._live = kept

    def begin(self) -> None:
        """Before anything changes: nobody is touched yet."""
        self._db.execute("CREATE OR REPLACE TEMP TABLE touched (id VARCHAR)")

    def touch_changed(self) -> None:
        """The tail took in or lost lines: their facts' rollouts, and theirs that have facts."""
        self._db.execute(
            """
            INSERT INTO touched
            SELECT id FROM changed WHERE id IN (SELECT rollout FROM tail.facts)
                OR id IN (SELECT rollout FROM tail.late) OR id IN (SELECT id FROM tail.patched)
            """
        )
        changed = self._db.execute(
            "SELECT id, NOT bool_or(begun) FROM changed LEFT JOIN tail.heads USING (id) GROUP BY id"
        ).fetchall()
        self._live -= {id for id, _ in changed}
        self._live |= (begun_elsewhere := {id for id, late in changed if late})
        self._touch_ids(begun_elsewhere)

    def touch_facts(self, facts: str) -> None:
        self._db.execute(f"INSERT INTO touched SELECT DISTINCT rollout FROM {facts}")

    def drop(self, units: set[str]) -> None:
        """These units count no more."""
        if not units:
            return
        values = {"units": sorted(units)}
        gone = "IN (SELECT unnest($units))"
        self._db.execute(
            f"INSERT INTO touched SELECT rollout FROM tail.late WHERE unit {gone}", values
        )
        self._db.execute(
            f"INSERT INTO touched SELECT id FROM tail.homes WHERE source {gone}", values
        )
        self._db.execute(f"DELETE FROM tail.late WHERE unit {gone}", values)
        for unit in units:
            self._touch_ids(self.continued.pop(unit, set()))

    def find_again(self, news: list[Unit], units: list[Unit]) -> None:
        """Rollouts of the tail that another process has logged, too, and that are sealed there.
        What is new of the tail is looked for in all units, all of it in new ones."""
        changed = "(SELECT * FROM tail.rollouts SEMI JOIN changed USING (id))"
        old = [unit for unit in units if unit not in news]
        for rows, holding in (("tail.rollouts", news), (changed, old)):
            sealed = self._scans.relation("rollouts", holding)
            if sealed is not None:
                again = found_again(self._db, rows, sealed)
                self._live |= again
                self._touch_ids(again)

    def add(self, units: list[Unit]) -> None:
        """These units count from now on."""
        if not units:
            return
        for unit in units:
            path = str(unit.directory)
            facts = self._scans.relation("facts", [unit]) if unit.info.late_facts else None
            if facts is not None:
                self._db.execute(
                    f"INSERT INTO tail.late BY NAME SELECT {literal(path)} AS unit, "
                    f"{columns('facts', without=['stream'])} FROM {facts} "
                    "WHERE folded IS NOT TRUE"
                )
            if unit.info.continued:
                self.continued[path] = set(unit.info.continued)
                self._touch_ids(self.continued[path])
        # Facts that waited for their rollout may find it in a new unit.
        self._db.execute(
            "INSERT INTO touched SELECT DISTINCT rollout FROM "
            "(SELECT rollout FROM tail.late UNION SELECT rollout FROM tail.facts) f "
            "ANTI JOIN tail.patched p ON p.id = f.rollout"
        )

    def _touch_ids(self, ids: set[str]) -> None:
        if ids:
            self._db.execute("INSERT INTO touched SELECT unnest($ids)", {"ids": sorted(ids)})

    def settle(self, units: list[Unit]) -> set[str]:
        """Make the rows of all touched rollouts anew. Returns the units that need checking."""
        db = self._db
        if one(db, "SELECT count(*) FROM touched"):
            for table in ("patched", "homes"):
                db.execute(f"DELETE FROM tail.{table} WHERE id IN (SELECT id FROM touched)")
            db.execute(
                "CREATE OR REPLACE TEMP TABLE needed AS SELECT DISTINCT id FROM touched "
                "WHERE id IN (SELECT rollout FROM tail.late) "
                "OR id IN (SELECT rollout FROM tail.facts) OR id IN (SELECT unnest($ids))",
                {"ids": sorted(self._live.union(*self.continued.values()))},
            )
            if one(db, "SELECT count(*) FROM needed"):
                self._patch(units)
        return self._sources("SELECT DISTINCT source FROM tail.homes")

    def _patch(self, units: list[Unit]) -> None:
        """Find the rows of the needed rollouts, wherever they lie, and fold."""
        db, names = self._db, columns("rollouts")
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE bases AS SELECT '' AS source, {names} "
            "FROM tail.rollouts WHERE id IN (SELECT id FROM needed)"
        )
        # Most late facts are about rollouts that are live too: then no file is opened.
        in_pieces = bool(self._live or self.continued)
        missing = "needed" if in_pieces else "(SELECT id FROM needed ANTI JOIN bases USING (id))"
        sealed = self._scans.relation("rollouts", units, filename=True)
        if sealed is not None and one(db, f"SELECT count(*) FROM {missing}"):
            db.execute(
                f"INSERT INTO bases SELECT parse_dirpath(filename), {names} FROM {sealed} "
                f"WHERE id IN (SELECT id FROM {missing})"
            )
        self._join_pieces(units)
        folded = fold("whole", self._all_facts(units))
        db.execute(f"INSERT INTO tail.patched BY NAME {folded}")
        db.execute("INSERT INTO tail.homes SELECT DISTINCT id, source FROM bases")

    def _join_pieces(self, units: list[Unit]) -> None:
        """`whole`: one row a rollout of `bases`."""
        select = f"SELECT {columns('rollouts')} FROM bases"
        if find_pieces(self._db, "bases"):
            wanted = columns("messages")
            messages = f"SELECT {wanted} FROM tail.messages"
            sources = self._sources("SELECT DISTINCT source FROM bases SEMI JOIN pieces USING (id)")
            holding = [unit for unit in units if str(unit.directory) in sources]
            sealed = self._scans.relation("messages", holding)
            if sealed is not None:
                messages = f"{messages} UNION ALL SELECT {wanted} FROM {sealed}"
            select = joined("bases", f"({messages})")
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE whole AS {select}")

    def _all_facts(self, units: list[Unit]) -> str:
        """All facts of the rollouts in `bases`: live, late, and those folded before."""
        names = ", ".join(f'"{name}"' for name in _FACTS)
        relations = [f"SELECT {names} FROM tail.facts", f"SELECT {names} FROM tail.late"]
        sources = self._sources("SELECT DISTINCT source FROM bases")
        homes = [u for u in units if str(u.directory) in sources]
        folded = self._scans.relation("facts", homes)
        if folded is not None:
            relations.append(f"SELECT {names} FROM {folded} WHERE folded")
        return (
            f"(SELECT * FROM ({' UNION ALL '.join(relations)}) "
            "WHERE rollout IN (SELECT id FROM needed))"
        )

    def _sources(self, sql: str) -> set[str]:
        return {source for (source,) in self._db.execute(sql).fetchall() if source}
