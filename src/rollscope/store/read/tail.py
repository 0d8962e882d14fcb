"""The live tail: logs that are still being written, as tables in the reader's memory.

New frames of all logs are read in one go, through the same SQL that seals logs. Rows that a
later line replaces, and thin rows of rollouts that grew, are taken out and put in again.

Tables (schema `tail`): heads, messages, spans, facts, metrics as staged, with the reader's
own number of the log in front; rollouts with the columns of the format.
"""

from __future__ import annotations

import copy
from pathlib import Path

from duckdb import DuckDBPyConnection

from .. import frames
from ..header import Header, complete_header, read_header
from ..lines import Spool
from ..listing import LiveLog
from ..pieces import BEST_ROW
from ..tables import columns, ddl, one, stage, thin

_KEPT = ("heads", "messages", "spans", "facts", "metrics")

_IN_SEVERAL_LOGS = "SELECT id FROM staged_heads GROUP BY id HAVING count(DISTINCT log) > 1"


class FollowedLog:
    """How far one live log has been read."""

    def __init__(self, number: int, directory: Path, live: LiveLog) -> None:
        self.number = number
        self.directory = directory
        self.path = live.path
        self.name = live.name
        self.offset = self.begin = live.begin
        self.size = 0
        self.lines = 0
        self.header: Header | None = None
        self.damaged: list[frames.Frame] = []
        self.bad_lines = 0
        self.trouble: str | None = None
        """Why it cannot be read."""

    @property
    def is_unread(self) -> bool:
        """Was there no good frame at its end? It may have been on its way to the disk."""
        return self.offset < self.size

    def is_stuck(self, end: int) -> bool:
        """Is there still none, though all up to `end` is on the disk? Then it is damaged."""
        try:
            if self.path.stat().st_size < end:
                return False
            frame = next(frames.scan(self.path, self.offset), None)
            return frame is not None and frame.error is not None
        except OSError:
            return False


class Tail:
    """All live logs of a reader. Used by one thread at a time, inside a transaction."""

    def __init__(self, db: DuckDBPyConnection, temporary: Path) -> None:
        self._db = db
        self._spool = temporary / "lines.ndjson"
        self._numbers = 0
        self.logs: dict[str, FollowedLog] = {}
        """By path."""
        db.execute("CREATE SCHEMA tail")
        db.execute(f"CREATE TABLE tail.rollouts ({ddl('rollouts')})")
        self._empty()

    def _empty(self) -> None:
        """Create the tables, by staging nothing."""
        spool = Spool(self._spool)
        spool.load(self._db)
        stage(self._db, {})
        spool.remove()
        for table in _KEPT:
            self._db.execute(f"CREATE TABLE tail.{table} AS SELECT * FROM staged_{table} LIMIT 0")

    def follow(self, grown: list[tuple[Path, LiveLog]]) -> None:
        """Read what these logs (run directory, log) have grown by.

        Afterwards `tail.changed` holds the ids of rollouts with new lines, and the staged
        tables what was read, until `clear`. Raises FileNotFoundError if one of them is gone.
        """
        spool = Spool(self._spool)
        headers: dict[int, Header] = {}
        try:
            for directory, live in grown:
                log = self._log(directory, live)
                try:
                    self._read(log, spool)
                    log.trouble = None
                except FileNotFoundError:
                    raise
                except OSError as error:  # we may not, or the disk fails: it is one log
                    log.size, log.trouble = live.size, f"cannot be read ({error.strerror})"
                headers[log.number] = log.header or complete_header(directory, log.name, None)
            bad = spool.load(self._db)
            stage(self._db, headers)
        finally:
            spool.remove()
        spans = dict(
            self._db.execute("SELECT log, count(*) FROM staged_spans GROUP BY log").fetchall()
        )
        for log in self.logs.values():
            log.bad_lines += bad[log.number]
            if log.header is not None:
                log.header.spans += spans.get(log.number, 0)
        self._merge()

    def clear(self) -> None:
        """Give back what `follow` staged: of a store of unsealed logs two thirds of all memory.
        Inside the transaction that would give nothing back."""
        for table in (*_KEPT, "lines"):
            self._db.execute(f"DROP TABLE IF EXISTS staged_{table}")

    def size(self, path: str) -> int | None:
        """The size of a log when it was last read; None: it never was."""
        log = self.logs.get(path)
        return None if log is None else log.size

    def snapshot(self) -> dict[str, FollowedLog]:
        """How far everything was read, to go back to if the transaction fails."""
        kept = {path: copy.copy(log) for path, log in self.logs.items()}
        for log in kept.values():
            log.header, log.damaged = copy.copy(log.header), list(log.damaged)
        return kept

    def restore(self, kept: dict[str, FollowedLog]) -> None:
        self.logs = kept

    def _log(self, directory: Path, live: LiveLog) -> FollowedLog:
        path = str(live.path)
        if path not in self.logs:
            self._numbers += 1
            self.logs[path] = FollowedLog(self._numbers, directory, live)
        return self.logs[path]

    def _read(self, log: FollowedLog, spool: Spool) -> None:
        """Spool the new good frames of a log. A bad end may be being written: it waits."""
        size = log.path.stat().st_size
        waiting: list[frames.Frame] = []
        for frame in frames.scan(log.path, log.offset):
            if frame.error is not None:
                waiting.append(frame)
                continue
            log.damaged += waiting
            waiting.clear()
            lines = frame.lines()
            if log.header is None:
                first = read_header(lines[0]) if log.lines == 0 and lines else None
                log.header = complete_header(log.directory, log.name, first)
            log.lines = spool.add(log.number, log.lines, lines)
            log.offset = frame.end
        log.size = size

    def _merge(self) -> None:
        db = self._db
        db.execute(
            "CREATE OR REPLACE TEMP TABLE changed AS "
            "SELECT id FROM staged_heads UNION SELECT rollout FROM staged_messages"
        )
        if one(db, "SELECT count(*) FROM tail.heads SEMI JOIN changed USING (id)"):
            db.execute(
                "DELETE FROM staged_heads WHERE line < 0 AND id IN (SELECT id FROM tail.heads)"
            )
            db.execute(
                "UPDATE staged_heads s SET begun = true FROM tail.heads h "
                "WHERE h.log = s.log AND h.id = s.id AND h.begun"
            )
            db.execute(
                "DELETE FROM tail.heads h WHERE (h.log, h.id) IN "
                "(SELECT (log, id) FROM staged_heads)"
            )
            # A message that comes again, in this log or another, replaces the earlier one.
            db.execute(
                "DELETE FROM tail.messages WHERE (rollout, n) IN "
                "(SELECT (rollout, n) FROM staged_messages)"
            )
            db.execute(
                "DELETE FROM tail.spans WHERE id IS NOT NULL AND (rollout, id) IN "
                "(SELECT (rollout, id) FROM staged_spans)"
            )
        if one(db, f"SELECT count(*) FROM ({_IN_SEVERAL_LOGS})"):
            for table, name in (("messages", "n"), ("spans", "id")):
                db.execute(
                    f"DELETE FROM staged_{table} WHERE rollout IN ({_IN_SEVERAL_LOGS}) AND {name} "
                    f"IS NOT NULL AND (rollout, {name}, log) NOT IN (SELECT (rollout, {name}, "
                    f"max(log)) FROM staged_{table} GROUP BY rollout, {name})"
                )
        for table in _KEPT:
            db.execute(f"INSERT INTO tail.{table} SELECT * FROM staged_{table}")
        self._count_again()

    def _count_again(self) -> None:
        """Make the thin rows of the rollouts in `changed` anew."""
        heads = (
            "(SELECT * FROM tail.heads SEMI JOIN changed USING (id) QUALIFY row_number() OVER "
            f"(PARTITION BY id ORDER BY {BEST_ROW}, log DESC) = 1)"
        )
        messages = "(SELECT * FROM tail.messages WHERE rollout IN (SELECT id FROM changed))"
        self._db.execute("DELETE FROM tail.rollouts WHERE id IN (SELECT id FROM changed)")
        self._db.execute(
            f"INSERT INTO tail.rollouts SELECT {columns('rollouts')} FROM ({thin(heads, messages)})"
        )

    def drop(self, paths: set[str]) -> None:
        """Forget logs that are sealed now. `changed` then holds what rollouts they had."""
        numbers = [self.logs.pop(path).number for path in paths]
        self._db.execute(
            "CREATE OR REPLACE TEMP TABLE changed AS "
            "SELECT DISTINCT id FROM tail.heads WHERE log IN (SELECT unnest($logs))",
            {"logs": numbers},
        )
        for table in _KEPT:
            self._db.execute(
                f"DELETE FROM tail.{table} WHERE log IN (SELECT unnest($logs))", {"logs": numbers}
            )
        self._count_again()
        if not self.logs:
            self._renew()

    def _renew(self) -> None:
        """Give the memory of deleted rows back: nothing is left to keep."""
        for table in (*_KEPT, "rollouts"):
            self._db.execute(f"TRUNCATE tail.{table}")
