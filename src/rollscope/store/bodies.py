"""The bodies of single rollouts: messages, spans, facts, from the files that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from duckdb import DuckDBPyConnection

from ..model import Fact, Message, Rollout, Span, Tokens
from ..model.facts import winners
from ..model.repeats import expand
from ..model.tokens import KNOWN_STREAMS, is_int, to_list
from .records import to_facts, to_message, to_rollout, to_span
from .tables import LENGTH, columns, rows
from .units import Unit
from .views import Shapes

Found = tuple[dict[str, Any], list[Unit]]
"""A thin row, and the sealed units that hold its rollout."""


class Sketch(NamedTuple):
    """A message without its body."""

    n: int
    parent: int | None
    """None: it begins a conversation."""
    role: str
    name: str | None
    chars: int
    tokens: int | None
    sampled: bool | None
    tools: list[str | None]
    beginning: str
    reward: float | None
    streams: list[str]


class Bodies:
    """Reads single rollouts over one listing of units and one connection."""

    def __init__(self, db: DuckDBPyConnection, shapes: Shapes, units: Iterable[Unit]) -> None:
        self._db = db
        self._shapes = shapes
        self._units = {str(unit.directory): unit for unit in units}

    def find(self, id: str) -> Found | None:
        """The thin row of a rollout and where its bodies lie; None: there is no such rollout."""
        names, values = columns("rollouts"), {"id": id}
        live = list(rows(self._db, f"SELECT {names} FROM tail.patched WHERE id = $id", values))
        if live:
            places = rows(self._db, "SELECT source FROM tail.places WHERE id = $id", values)
            homes = [self._units[p["source"]] for p in places if p["source"] in self._units]
            return live[0], homes
        live = list(rows(self._db, f"SELECT {names} FROM tail.rollouts WHERE id = $id", values))
        if live:
            return live[0], []
        sealed = self._shapes.relation("rollouts", self._units.values(), filename=True)
        if sealed is None:
            return None
        sql = (
            f"SELECT {names}, parse_dirpath(filename) AS unit FROM {sealed} WHERE id = $id "
            "ORDER BY time DESC NULLS LAST LIMIT 1"
        )
        for row in rows(self._db, sql, values):
            return row, [self._units[row.pop("unit")]]
        return None

    def rollout(self, id: str) -> Rollout | None:
        """A whole rollout, late facts and streams folded in."""
        found = self.find(id)
        if found is None:
            return None
        row, homes = found
        return to_rollout(row, self.messages(id, homes), self.spans(id, homes))

    def messages(
        self, id: str, homes: list[Unit], first: int = 0, stop: int | None = None
    ) -> list[Message]:
        """Messages `first` up to, not including, `stop`, with late streams laid over them."""
        names = columns("messages")
        wanted = "rollout = $id AND n >= $first" + ("" if stop is None else " AND n < $stop")
        values: dict[str, Any] = {"id": id, "first": first}
        if stop is not None:
            values["stop"] = stop
        found = self._everywhere("messages", names, homes, wanted, values)
        # A message that was written again, into the next log, is the same message.
        by_number = {row["n"]: row for row in found}
        messages = {n: to_message(by_number[n]) for n in sorted(by_number)}
        late = [f for f in winners(self.facts(id, homes, streams=True)) if f.stream is not None]
        if late:
            lay_streams(messages, late, self._lengths(id, homes))
        return list(messages.values())

    def outline(self, id: str, homes: list[Unit]) -> list[Sketch]:
        """Every message in a few words and numbers; late streams count, too."""
        known = ", ".join(
            f"CASE WHEN {name} IS NOT NULL THEN '{name}' END" for name in KNOWN_STREAMS
        )
        names = (
            f"n, parent, role, name, coalesce(length(text), 0) AS chars, {LENGTH} AS tokens, "
            "sampled, list_concat(json_extract_string(tool_calls, '$[*].name'), "
            "json_extract_string(parts, '$[*].call.name')) AS tools, "
            "coalesce(left(text, 200), '') AS beginning, reward, "
            f"list_concat(list_filter([{known}], lambda s: s IS NOT NULL), "
            "coalesce(map_keys(streams), [])) AS streams"
        )
        found = self._everywhere("messages", names, homes, "rollout = $id", {"id": id})
        by_number = {row["n"]: row for row in found}
        late = [f.name.partition(".")[2] for f, _ in self.facts(id, homes, streams=True)]
        sketches = []
        for n in sorted(by_number):
            row = by_number[n]
            row["tools"] = row["tools"] or []
            row["streams"] = [*row["streams"], *late] if row["tokens"] is not None else []
            sketches.append(Sketch(**row))
        return sketches

    def spans(self, id: str, homes: list[Unit]) -> list[Span]:
        """All spans, of every process, in the order they were recorded, arguments written out."""
        others = [u for u in self._units.values() if u.info.late_spans and u not in homes]
        found = self._everywhere(
            "spans", columns("spans"), homes + others, "rollout = $id", {"id": id}
        )
        found.sort(key=lambda row: row["n"])
        return expand([to_span(row) for row in found])

    def facts(self, id: str, homes: list[Unit], *, streams: bool = False) -> list[tuple[Fact, str]]:
        """All late facts, each with its writer; or only those that carry streams."""
        late = rows(self._db, "SELECT DISTINCT unit FROM tail.late WHERE rollout = $id", {"id": id})
        others = [self._units[row["unit"]] for row in late if row["unit"] in self._units]
        places = homes + [unit for unit in others if unit not in homes]
        only = "rollout = $id" + (" AND stream IS NOT NULL" if streams else "")
        found = self._everywhere("facts", columns("facts"), places, only, {"id": id})
        return to_facts(found)

    def _lengths(self, id: str, homes: list[Unit]) -> dict[int, int]:
        """How many tokens each message has that has any."""
        found = self._everywhere(
            "messages", f"n, {LENGTH} AS tokens", homes, "rollout = $id", {"id": id}
        )
        pairs = {row["n"]: row["tokens"] for row in found if row["tokens"] is not None}
        return dict(sorted(pairs.items()))

    def _everywhere(
        self, table: str, names: str, units: list[Unit], where: str, values: dict[str, Any]
    ) -> list[dict[str, Any]]:
        filled = [unit for unit in units if unit.info.rows.get(table, 1)]
        sealed = self._shapes.relation(table, filled)
        found: list[dict[str, Any]] = []
        for relation in (sealed, f"tail.{table}"):
            if relation is not None:
                found += rows(self._db, f"SELECT {names} FROM {relation} WHERE {where}", values)
        return found


def lay_streams(messages: dict[int, Message], facts: list[Fact], lengths: dict[int, int]) -> None:
    """Lay late streams over the tokens of these messages, as `model.fold` does.

    A stream whose length does not fit is left out: cut or padded it would shift every value.
    """
    for fact in facts:
        name = fact.name.partition(".")[2]
        chosen = (
            lengths
            if fact.message is None
            else {n: length for n, length in lengths.items() if n == fact.message}
        )
        if not name or sum(chosen.values()) != len(fact.stream):
            continue
        at = 0
        for n, length in chosen.items():
            piece, at = fact.stream[at : at + length], at + length
            message = messages.get(n)
            if message is None or message.tokens is None:
                continue
            if piece and all(value is None for value in piece):
                continue
            old = message.tokens
            streams = {**old.streams, name: to_list(piece, is_int(name))}
            messages[n] = msgspec.structs.replace(
                message, tokens=Tokens(old.ids, old.ends, streams)
            )
