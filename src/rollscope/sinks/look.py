"""What there is to do: which rollouts of a run may be sent, and which sent ones have changed.

One cheap query finds the steps that changed since the last look. Only their rollouts are listed, by
id, group and a digest of their facts. Whole rollouts are never read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from duckdb import DuckDBPyConnection

from ..model.facts import FATE_RANK
from ..model.grouping import NAME
from ..model.sample import DRAWN_BY, Sample
from ..model.schema import HAS_ERROR, ROLLOUTS
from ..store.read.reader import Reader
from .base import Metric
from .choose import Candidate, Slot, choose
from .journal import IdDigest, Journal

MOST = 50_000
"""Rollouts that are listed at a time: bounds the memory of a run that is behind."""

LATE_STEPS = 8
"""Steps after which the fate of a rollout is no longer expected. Asynchronous trainers learn from
rollouts that are a few steps old: prime-rl's `max_off_policy_steps` is 8 unless set."""

_ENDS = "('failed', 'dropped', 'rejected')"
_LATE = [c.name for c in ROLLOUTS if c.late or c.source == "facts"]
_FACTS = ", ".join(f'to_json("{name}")::VARCHAR' for name in _LATE)
_ENDED = "(NOT coalesce(open, false) AND NOT superseded)"
_KNOWN = f"(reward IS NOT NULL OR {HAS_ERROR} OR coalesce(fate IN {_ENDS}, false))"

_UNDECIDED = ", ".join(f"'{fate}'" for fate, rank in FATE_RANK.items() if rank < 2)
_DECIDED = f"coalesce(fate NOT IN ({_UNDECIDED}), false)"


# What is null is left out, so that a new column does not make everything sent before a change.
_DIGEST = ", ".join(f"'{name}:' || to_json(\"{name}\")::VARCHAR" for name in _LATE)
_ROW = (
    f"id, launch, step, split, {DRAWN_BY}, row({NAME}), {_ENDED}, {_KNOWN}, "
    f"{_DECIDED}, left(md5(concat_ws(chr(10), {_DIGEST})), 16)"
)


class _Slot(NamedTuple):
    """A slot as a look found it."""

    slot: Slot
    size: int
    mark: int
    """Changes when its rollouts do."""
    is_over: bool
    """Has a later step of the same launch begun, or has everything ended?"""
    is_final: bool
    """Is nothing more expected of its rollouts, not even of those without a fate?"""

    @property
    def look(self) -> object:
        """What it looks like: if this is the same, there is nothing new to do."""
        return self.mark, self.is_over, self.is_final


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
        self._metrics: dict[int | None, list[int]] = {}
        """Steps whose metrics were sent: how many, and what they looked like then."""

    def look(self, journal: Journal | None, is_over: bool, can_update: bool = True) -> Due:
        """What is to be done now. `is_over`: all writers have ended, nothing more will come.
        `can_update`: the other system takes later facts, so nothing has to be waited for."""
        return self._reader.reading(lambda db: self._look(db, journal, is_over, can_update))

    def _look(
        self, db: DuckDBPyConnection, journal: Journal | None, is_over: bool, can_update: bool
    ) -> Due:
        new: list[IdDigest] = []
        changed: list[IdDigest] = []
        beyond = 0
        slots = self._slots(db, is_over, can_update)
        for batch in _batches([s for s in slots if self._settled.get(s.slot) != s.look]):
            if len(new) + len(changed) >= MOST:
                beyond += sum(found.size for found in batch)
                continue
            rows = self._rows(db, [found.slot for found in batch])
            for found in batch:
                send, update = self._sort(found, rows.get(found.slot, []), journal)
                new += send
                changed += update
                if send or update or journal is None:
                    self._settled.pop(found.slot, None)
                else:
                    self._settled[found.slot] = found.look
        return Due(new, changed, len(new) + beyond, sum(self._left_out.values()))

    def _sort(
        self, found: _Slot, rows: list[Candidate], journal: Journal | None
    ) -> tuple[list[IdDigest], list[IdDigest]]:
        sent = journal.sent if journal is not None else {}
        gave_up = journal.gave_up if journal is not None else set()
        doubtful = journal.doubtful if journal is not None else {}
        changed = [(r.id, r.digest) for r in rows if r.id in sent and sent[r.id] != r.digest]
        if self._sample is not None and self._sample.counts and not found.is_over:
            return [], changed
        chosen = choose(rows, self._sample, sent.keys() | doubtful.keys())
        ended = [row for row in chosen if row.ended]
        self._left_out[found.slot] = sum(row.ended for row in rows) - len(ended)
        new = [
            (row.id, row.digest)
            for row in ended
            if (row.known or found.is_over)
            and (found.is_final or (row.decided and found.is_over))
            and row.id not in sent
            and row.id not in gave_up
        ]
        return new, changed

    def _slots(self, db: DuckDBPyConnection, is_over: bool, can_update: bool) -> list[_Slot]:
        """Every slot, in the order of steps."""
        rows = db.execute(
            "SELECT launch, step, split, count(*), "
            f"bit_xor(hash(id, {_ENDED}, {_FACTS})), coalesce(bool_or(fate = 'trained'), false) "
            "FROM rollouts WHERE project = ? AND run = ? GROUP BY ALL "
            "ORDER BY step NULLS FIRST, launch, split",
            self._names,
        ).fetchall()
        first: dict[str | None, int] = {}
        last: dict[str | None, int] = {}
        learns = {(launch, split) for launch, _, split, _, _, trained in rows if trained}
        for launch, step, *_ in rows:
            if step is not None:
                first.setdefault(launch, step)
                last[launch] = step
        found = []
        for launch, step, split, count, mark, _ in rows:
            slot = Slot(launch, step, split)
            if is_over or step is None:  # without steps, nobody knows what still comes
                found.append(_Slot(slot, count, mark, is_over, True))
                continue
            over = step < last[launch]
            may_learn = (launch, split) in learns or last[launch] - first[launch] < LATE_STEPS
            is_final = over and (not may_learn or last[launch] - step >= LATE_STEPS)
            found.append(_Slot(slot, count, mark, over, is_final or can_update))
        return found

    # -- metrics -----------------------------------------------------------------------------

    def metrics_mark(self) -> str:
        """Changes when there are new metrics."""
        (found,) = self._reader.reading(
            lambda db: db.execute(
                "SELECT concat(count(*), ' ', bit_xor(hash(launch, step, name, value, time))) "
                "FROM metrics WHERE project = ? AND run = ?",
                self._names,
            ).fetchall()
        )
        return str(found[0])

    def metrics(self) -> Iterator[list[Metric]]:
        """Metrics of the steps that have changed since the last time, about 1,000 at a time. What
        was yielded counts as sent when the next batch is asked for."""
        steps = self._reader.reading(
            lambda db: db.execute(
                "SELECT step, count(*), bit_xor(hash(launch, name, value, time)) FROM metrics "
                "WHERE project = ? AND run = ? GROUP BY step ORDER BY step NULLS FIRST",
                self._names,
            ).fetchall()
        )
        left = {step: mark for step, *mark in steps if self._metrics.get(step) != mark}
        while left:
            batch: dict[int | None, list[int]] = {}
            while left and sum(count for count, _ in batch.values()) < 1000:
                step = next(iter(left))
                batch[step] = left.pop(step)
            yield self._values(list(batch))
            self._metrics |= batch

    def _values(self, steps: list[int | None]) -> list[Metric]:
        found = self._reader.reading(
            lambda db: db.execute(
                "SELECT name, value, step, time FROM metrics WHERE project = ? AND run = ? "
                "AND (step IN (SELECT unnest(?::BIGINT[])) OR (? AND step IS NULL)) "
                "AND value IS NOT NULL ORDER BY time, name",
                [*self._names, [s for s in steps if s is not None], None in steps],
            ).fetchall()
        )
        return [Metric(*row) for row in found]

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
    id, launch, step, split, drawn, name, ended, known, decided, digest = values
    group = name if name[0] is not None else (id,)
    return Candidate(id, Slot(launch, step, split), drawn, group, ended, known, decided, digest)


def _batches(slots: list[_Slot]) -> Iterator[list[_Slot]]:
    """Neighbouring slots, about 10,000 rollouts together."""
    batch: list[_Slot] = []
    for slot in slots:
        batch.append(slot)
        if sum(found.size for found in batch) >= 10_000:
            yield batch
            batch = []
    if batch:
        yield batch
