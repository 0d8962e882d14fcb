"""Many whole rollouts at once, for whoever goes through all of them: exports.

One by one, each costs a look into every file. A batch costs that once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...model import Rollout
from ...model.facts import winners
from ...model.repeats import expand
from ..tables import columns, rows
from .bodies import Bodies, lay_streams
from .records import to_facts, to_message, to_rollout, to_span

Row = dict[str, Any]
_Found = tuple[Row, set[str]]
"""A thin row, and the directories of the sealed units that hold its rollout."""


class Whole:
    """A rollout with what only its thin row tells."""

    __slots__ = ("flags", "is_open", "labels", "rollout", "size", "writer")

    def __init__(self, row: Row, rollout: Rollout, size: int) -> None:
        self.rollout = rollout
        self.labels: list[str] = row["labels"] or []
        self.flags: list[str] = row["flags"] or []
        self.writer: str | None = row["writer"]
        self.is_open = bool(row["open"])
        self.size = size
        """Characters and tokens of its messages and spans, about."""


class ManyBodies(Bodies):
    """Reads whole rollouts, one or a batch."""

    def many(self, ids: Sequence[str]) -> list[Whole]:
        """These rollouts in this order, facts and streams folded in; unknown ids are left out."""
        wanted = list(ids)
        found = self._found(wanted)
        homes: set[str] = set().union(*(units for _, units in found.values()))
        messages = self._by_rollout("messages", wanted, homes)
        spans = self._by_rollout("spans", wanted, homes | self._late("late_spans"))
        facts = self._by_rollout(
            "facts", wanted, homes | self._late("late_facts"), "stream IS NOT NULL"
        )
        return [
            _whole(found[id][0], messages.get(id, []), spans.get(id, []), facts.get(id, []))
            for id in wanted
            if id in found
        ]

    def _found(self, ids: list[str]) -> dict[str, _Found]:
        names = columns("rollouts")
        found: dict[str, _Found] = {}
        sealed = self._scans.relation("rollouts", self._units.values(), filename=True)
        if sealed is not None:
            place = "parse_dirpath(filename) AS unit"
            for row in self._among(ids, f"{names}, {place}", sealed, "id"):
                unit, old = row.pop("unit"), found.get(row["id"])
                if old is None or _is_later(row, old[0]):
                    found[row["id"]] = row, {unit}
        for tail in ("tail.rollouts", "tail.patched"):
            for row in self._among(ids, names, tail, "id"):
                found[row["id"]] = row, set()
        for row in self._among(ids, "id, source", "tail.places", "id"):
            if row["id"] in found:
                found[row["id"]][1].add(row["source"])
        return found

    def _late(self, what: str) -> set[str]:
        """Units that hold spans or facts of rollouts that lie in others."""
        return {name for name, unit in self._units.items() if getattr(unit.info, what)}

    def _by_rollout(
        self, table: str, ids: list[str], homes: set[str], where: str = "true"
    ) -> dict[str, list[Row]]:
        filled = [
            unit
            for name, unit in self._units.items()
            if name in homes and unit.info.rows.get(table, 1)
        ]
        made: dict[str, list[Row]] = {}
        for relation in (self._scans.relation(table, filled), f"tail.{table}"):
            if relation is not None:
                for row in self._among(ids, columns(table), relation, "rollout", where):
                    made.setdefault(row["rollout"], []).append(row)
        return made

    def _among(
        self, ids: list[str], names: str, relation: str, id: str, where: str = "true"
    ) -> Iterable[Row]:
        sql = f"SELECT {names} FROM {relation} WHERE {where} AND {id} IN (SELECT unnest($ids))"
        return rows(self._db, sql, {"ids": ids})


def _whole(row: Row, messages: list[Row], spans: list[Row], facts: list[Row]) -> Whole:
    # A message that was written again, into the next log, is the same message.
    by_number = {message["n"]: message for message in messages}
    made = {n: to_message(by_number[n]) for n in sorted(by_number)}
    late = [fact for fact in winners(to_facts(facts)) if fact.stream is not None]
    if late:
        lengths = {n: len(m.tokens) for n, m in made.items() if m.tokens is not None}
        lay_streams(made, late, lengths)
    spans.sort(key=lambda span: int(span["n"]))
    size = sum(len(m["text"] or "") + 8 * len(m["token_ids"] or ()) for m in messages)
    size += sum(len(s["inputs"] or "") + len(s["outputs"] or "") for s in spans)
    rollout = to_rollout(row, list(made.values()), expand([to_span(span) for span in spans]))
    return Whole(row, rollout, size)


def _is_later(row: Row, old: Row) -> bool:
    return row["time"] is not None and (old["time"] is None or row["time"] > old["time"])
