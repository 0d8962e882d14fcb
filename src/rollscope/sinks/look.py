"""What there is to do: which rollouts of a run may be sent, and which sent ones have changed.

One cheap query finds the steps that changed since the last look. Only their rollouts are listed, by
id, group and a digest of their facts. Whole rollouts are never read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from duckdb import DuckDBPyConnection

from ..model.grouping import NAME
from ..model.sample import DRAWN_BY, Sample
from ..model.schema import ROLLOUTS
from ..store.read.reader import Reader
from .choose import Candidate, Slot, choose, waits_for_step
from .journal import IdDigest, Journal

MOST = 50_000
"""Rollouts that are listed at a time: bounds the memory of a run that is behind."""

_ENDS = "('failed', 'dropped', 'rejected')"
_LATE = [c.name for c in ROLLOUTS if c.late or c.source == "facts"]
_FACTS = ", ".join(f'to_json("{name}")::VARCHAR' for name in _LATE)
_ENDED = "(NOT coalesce(open, false) AND NOT superseded)"
_KNOWN = (
    "(reward IS NOT NULL OR error_kind IS NOT NULL OR error_type IS NOT NULL "
    f"OR error_text IS NOT NULL OR coalesce(fate IN {_ENDS}, false))"
)


# What is null is left out, so that a new column does not make everything sent before a change.
_DIGEST = ", ".join(f"'{name}:' || to_json(\"{name}\")::VARCHAR" for name in _LATE)
_ROW = (
    f"id, launch, step, split, {DRAWN_BY}, row({NAME}), {_ENDED}, {_KNOWN}, "
    f"left(md5(concat_ws(chr(10), {_DIGEST})), 16)"
)


class Due(NamedTuple):
    """What a look found."""

    new: list[IdDigest]
    """To be sent, the oldest step first."""
    changed: list[IdDigest]
    """Sent before, with other facts."""
    waiting: int
    """Rollouts that are ready, listed here or not yet."""
    left_out: int
    """Rollouts that the cap does not let through."""


class Looker:
    """Looks at one run again and again. Remembers what did not change."""

    def __init__(self, reader: Reader, project: str, run: str, sample: Sample | None) -> None:
        self._reader = reader
        self._names = [project, run]
        self._sample = sample
        self._settled: dict[Slot, object] = {}
        """Slots in which nothing was left to do, and what they looked like then."""
        self._left_out: dict[Slot, int] = {}

    def look(self, journal: Journal | None, is_over: bool) -> Due:
        """What is to be done now. `is_over`: all writers have ended, nothing more will come."""
        return self._reader.reading(lambda db: self._look(db, journal, is_over))

    def _look(self, db: DuckDBPyConnection, journal: Journal | None, is_over: bool) -> Due:
        slots = self._slots(db)
        last: dict[str | None, int] = {}
        for slot, _, _ in slots:
            if slot.step is not None:
                last[slot.launch] = max(slot.step, last.get(slot.launch, slot.step))
        new: list[IdDigest] = []
        changed: list[IdDigest] = []
        beyond = 0
        for batch in _batches(
            [
                (slot, count, (mark, self._step_over(slot, last, is_over)))
                for slot, count, mark in slots
                if self._settled.get(slot) != (mark, self._step_over(slot, last, is_over))
            ]
        ):
            if len(new) + len(changed) >= MOST:
                beyond += sum(count for _, count, _ in batch)
                continue
            rows = self._rows(db, [slot for slot, _, _ in batch])
            for slot, _, look in batch:
                send, update = self._sort(slot, rows.get(slot, []), look[1], journal)
                new += send
                changed += update
                if send or update or journal is None:
                    self._settled.pop(slot, None)
                else:
                    self._settled[slot] = look
        return Due(new, changed, len(new) + beyond, sum(self._left_out.values()))

    def _step_over(self, slot: Slot, last: dict[str | None, int], is_over: bool) -> bool:
        """Has a later step of the same launch begun, or has everything ended?"""
        return is_over or (slot.step is not None and slot.step < last[slot.launch])

    def _sort(
        self, slot: Slot, rows: list[Candidate], is_over: bool, journal: Journal | None
    ) -> tuple[list[IdDigest], list[IdDigest]]:
        sent = journal.sent if journal is not None else {}
        gave_up = journal.gave_up if journal is not None else set()
        doubtful = journal.doubtful if journal is not None else {}
        changed = [(r.id, r.digest) for r in rows if r.id in sent and sent[r.id] != r.digest]
        if waits_for_step(self._sample) and not is_over:
            return [], changed
        chosen = choose(rows, self._sample, sent.keys() | doubtful.keys())
        self._left_out[slot] = sum(row.ended for row in rows) - sum(row.ended for row in chosen)
        new = [
            (row.id, row.digest)
            for row in chosen
            if row.ended and (row.known or is_over) and row.id not in sent and row.id not in gave_up
        ]
        return new, changed

    def _slots(self, db: DuckDBPyConnection) -> list[tuple[Slot, int, int]]:
        """Every slot with the number of its rollouts and a mark that changes when they do."""
        found = db.execute(
            f"SELECT launch, step, split, count(*), bit_xor(hash(id, {_ENDED}, {_FACTS})) "
            "FROM rollouts WHERE project = ? AND run = ? GROUP BY ALL "
            "ORDER BY step NULLS FIRST, launch, split",
            self._names,
        ).fetchall()
        return [(Slot(*row[:3]), row[3], row[4]) for row in found]

    def _rows(self, db: DuckDBPyConnection, slots: list[Slot]) -> dict[Slot, list[Candidate]]:
        """The rollouts of these slots, each once."""
        wanted = set(slots)
        steps = [slot.step for slot in slots if slot.step is not None]
        where = ["step IS NULL"] if len(steps) < len(slots) else []
        where += [f"step BETWEEN {min(steps)} AND {max(steps)}"] if steps else []
        found = db.execute(
            f"SELECT {_ROW} "
            f"FROM rollouts r WHERE project = ? AND run = ? AND ({' OR '.join(where)}) "
            'ORDER BY "group", index, time, id',
            self._names,
        ).fetchall()
        rows: dict[Slot, dict[str, Candidate]] = {}
        for values in found:
            row = _row(values)
            if row.slot in wanted:
                rows.setdefault(row.slot, {})[row.id] = row
        return {slot: list(found.values()) for slot, found in rows.items()}


def rows_of(reader: Reader, ids: list[str]) -> dict[tuple[str, str, Path], list[Candidate]]:
    """These rollouts in their order, by project, run and its directory."""
    directories = {(run.project, run.run): run.directory for run in reader.runs()}
    found = reader.reading(
        lambda db: db.execute(
            f"SELECT {_ROW}, project, run FROM rollouts r WHERE id IN (SELECT unnest(?))", [ids]
        ).fetchall()
    )
    by_id = {values[0]: values for values in found}
    rows: dict[tuple[str, str, Path], list[Candidate]] = {}
    for id in ids:
        if id in by_id:
            project, run = by_id[id][-2:]
            place = project, run, directories[project, run]
            rows.setdefault(place, []).append(_row(by_id[id][:-2]))
    return rows


def _row(values: tuple[Any, ...]) -> Candidate:
    id, launch, step, split, drawn, name, ended, known, digest = values
    group = name if name[0] is not None else (id,)
    return Candidate(id, Slot(launch, step, split), drawn, group, ended, known, digest)


_Seen = tuple[Slot, int, tuple[int, bool]]


def _batches(slots: list[_Seen]) -> Iterator[list[_Seen]]:
    """Neighbouring slots, about 10,000 rollouts together."""
    batch: list[_Seen] = []
    for slot in slots:
        batch.append(slot)
        if sum(count for _, count, _ in batch) >= 10_000:
            yield batch
            batch = []
    if batch:
        yield batch
