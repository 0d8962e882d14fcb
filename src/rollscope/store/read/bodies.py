"""The bodies of rollouts: messages, spans, facts, from the files that hold them.

A single rollout costs a look into every file. So does a batch of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from duckdb import DuckDBPyConnection

from ...model import Fact, Message, Rollout, Span, conversation, schema
from ...model.facts import lay, winners
from ...model.repeats import expand
from ...model.tokens import KNOWN_STREAMS
from ..pieces import BEST_ROW
from ..scans import Scans
from ..tables import LENGTH, StoredRow, columns, q, rows
from ..units import Unit
from .records import HEAD, to_facts, to_message, to_rollout, to_span


class Location(NamedTuple):
    """Where a rollout lies."""

    thin: str | None
    """The table of the tail that has its thin row; None: its home has."""
    homes: list[Unit]
    """The sealed units that hold it."""


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
    """The tools that it calls, by name."""
    arguments: list[str]
    """How the arguments of each call begin."""
    thinks: bool
    beginning: str
    reward: float | None
    streams: list[str]


def sketch(n: int, message: Message) -> Sketch:
    """The same of a message that was read whole."""
    text, tokens = conversation.text(message), message.tokens
    calls = conversation.tool_calls(message)
    parent = conversation.parent_of(n, message)
    return Sketch(
        n=n,
        parent=None if parent < 0 else parent,
        role=message.role,
        name=message.name,
        chars=len(text),
        tokens=None if tokens is None else len(tokens),
        sampled=message.sampled,
        tools=[call.name for call in calls],
        arguments=[_written(call.arguments)[:ARGUMENTS] for call in calls],
        thinks=conversation.thinks(message),
        beginning=text[:200],
        reward=message.reward,
        streams=[] if tokens is None else list(tokens.streams),
    )


ARGUMENTS = 300
"""Characters of a call's arguments in a sketch."""

_CALLS = """list_concat(coalesce(json_extract(tool_calls, '$[*]'), []),
    coalesce(json_extract(parts, '$[*].call'), []))"""


def _written(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


class RowAndRollout(NamedTuple):
    """A rollout with its thin row."""

    row: StoredRow
    """Every column of the view `rollouts`."""
    rollout: Rollout | None
    """None: it has more messages than were wanted."""


class StoredRollout:
    """A rollout with what only its thin row tells."""

    __slots__ = ("flags", "is_open", "labels", "rollout", "size", "writer")

    def __init__(self, row: StoredRow, rollout: Rollout, size: int) -> None:
        self.rollout = rollout
        self.labels: list[str] = row["labels"] or []
        self.flags: list[str] = row["flags"] or []
        self.writer: str | None = row["writer"]
        self.is_open = bool(row["open"])
        self.size = size
        """Characters and tokens of its messages and spans, about."""

    def __repr__(self) -> str:
        return f"StoredRollout({self.rollout.id!r})"


OF_BODIES = "(stream IS NOT NULL OR message IS NOT NULL)"
"""Facts about messages and their tokens. They are laid over the messages; others are folded."""

_THIN = tuple(column.name for column in schema.TABLES["rollouts"])


class BodyReader:
    """Reads whole rollouts over one listing of units and one connection.

    Each question costs a millisecond, so tables that are empty are not asked.
    """

    def __init__(
        self,
        db: DuckDBPyConnection,
        scans: Scans,
        units: Iterable[Unit],
        filled: frozenset[str],
        homes: str | None,
    ) -> None:
        self._db = db
        self._scans = scans
        self._units = {str(unit.directory): unit for unit in units}
        self._filled = filled
        """The tables of the schema `tail` that have rows."""
        self._homes = homes
        """Which sealed row lies in which file."""

    # -- one rollout -----------------------------------------------------------------------

    def find(self, id: str) -> Location | None:
        """Where a rollout lies; None: there is no such rollout."""
        values = {"id": id}
        if self._live("patched", "id", "id = $id", values):
            found = self._live("homes", "source", "id = $id", values)
            homes = [self._units[r["source"]] for r in found if r["source"] in self._units]
            return Location("patched", homes)
        if self._live("rollouts", "id", "id = $id", values):
            return Location("rollouts", [])
        homes = self._sealed_in("id = $id", values)
        if len(homes) > 1:  # logged twice under one key
            sealed = self._scans.relation("rollouts", homes, filename=True)
            best = f"SELECT filename FROM {sealed} WHERE id = $id ORDER BY {BEST_ROW} LIMIT 1"
            homes = [self._unit_of(row["filename"]) for row in rows(self._db, best, values)]
        return Location(None, homes) if homes else None

    def _sealed_in(self, where: str, values: dict[str, Any]) -> list[Unit]:
        """The units that hold such rows. A whole row asked of all files takes thrice as long as
        first asking where it is."""
        homes: Iterable[str | None] = [self._homes]
        if self._scans.is_far and "ids" not in values:  # one rollout: the newest files come first
            batches = self._scans.in_turn(list(self._units.values()))
            homes = (self._scans.relation("rollouts", units, filename=True) for units in batches)
        for home in filter(None, homes):
            sql = f"SELECT DISTINCT filename FROM {home} WHERE {where}"
            if found := [self._unit_of(row["filename"]) for row in rows(self._db, sql, values)]:
                return found
        return []

    def _unit_of(self, file: str) -> Unit:
        return self._units[str(Path(file).parent)]

    def rollout(self, id: str) -> Rollout | None:
        """A whole rollout, late facts and streams folded in."""
        found = self._thin(id, HEAD)
        return None if found is None else self._made(*found)

    def opened(self, id: str, most: int) -> RowAndRollout | None:
        """A rollout with its thin row, found once for both; None: there is no such rollout."""
        found = self._thin(id, _THIN)
        if found is None:
            return None
        row, location = found
        hidden = "SELECT id FROM tail.hidden WHERE id = $id"
        row["superseded"] = any(rows(self._db, hidden, {"id": id}))
        short = row["messages"] is not None and row["messages"] <= most
        return RowAndRollout(row, self._made(row, location) if short else None)

    def _thin(self, id: str, names: Sequence[str]) -> tuple[StoredRow, Location] | None:
        """The thin row of a rollout, and where it lies; None: there is no such rollout."""
        location = self.find(id)
        if location is None:
            return None
        if location.thin is None:
            found = self._sealed("rollouts", names, location.homes, "id = $id", {"id": id})
        else:
            found = self._live(location.thin, _listed(names), "id = $id", {"id": id})
        return (found[0], location) if found else None  # it moved on meanwhile: we are asked again

    def _made(self, row: StoredRow, location: Location) -> Rollout:
        id, homes = row["id"], location.homes
        return to_rollout(row, self.messages(id, homes), self.spans(id, homes))

    def messages(
        self, id: str, homes: list[Unit], first: int = 0, stop: int | None = None
    ) -> list[Message]:
        """Messages `first` up to, not including, `stop`, with late streams laid over them."""
        wanted, values = "rollout = $id", dict[str, Any](id=id)
        if first > 0:
            wanted, values["first"] = f"{wanted} AND n >= $first", first
        if stop is not None:
            wanted, values["stop"] = f"{wanted} AND n < $stop", stop
        messages = _messages(self._whole("messages", homes, wanted, values))
        late = list(winners(self.facts(id, homes, bodies=True)))
        if late:
            has_streams = any(fact.stream is not None for fact in late)
            lay(messages, late, self._lengths(id, homes) if has_streams else {})
        return list(messages.values())

    def outline(self, id: str, homes: list[Unit]) -> list[Sketch]:
        """Every message in a few words and numbers; late streams count, too."""
        known = ", ".join(
            f"CASE WHEN {name} IS NOT NULL THEN '{name}' END" for name in KNOWN_STREAMS
        )
        names = (
            f"n, parent, role, name, coalesce(length(text), 0) AS chars, {LENGTH} AS tokens, "
            f"sampled, list_transform({_CALLS}, lambda c: c ->> '$.name') AS tools, "
            f"list_transform({_CALLS}, lambda c: coalesce(left(c ->> '$.arguments', "
            f"{ARGUMENTS}), '')) AS arguments, {conversation.THINKS} AS thinks, "
            "coalesce(left(text, 200), '') AS beginning, reward, "
            f"list_concat(list_filter([{known}], lambda s: s IS NOT NULL), "
            "coalesce(map_keys(streams), [])) AS streams"
        )
        found = self._everywhere("messages", names, homes, "rollout = $id", {"id": id})
        by_number = {row["n"]: row for row in found}
        late = list(winners(self.facts(id, homes, bodies=True)))
        streams = [f.name.partition(".")[2] for f in late if f.stream is not None]
        rewards = {f.message: f.value for f in late if f.name == "reward"}
        sketches = []
        for n in sorted(by_number):
            row = by_number[n]
            row["streams"] = [*row["streams"], *streams] if row["tokens"] is not None else []
            row["reward"] = rewards.get(n, row["reward"])
            sketches.append(Sketch(**row))
        return sketches

    def spans(self, id: str, homes: list[Unit]) -> list[Span]:
        """All spans, of every process, in the order they were recorded, arguments written out."""
        others = [u for u in self._units.values() if u.info.late_spans and u not in homes]
        return _spans(self._whole("spans", homes + others, "rollout = $id", {"id": id}))

    def facts(self, id: str, homes: list[Unit], *, bodies: bool = False) -> list[tuple[Fact, str]]:
        """All late facts, each with its writer; or only those about messages and their tokens."""
        late = self._live("late", "DISTINCT unit", "rollout = $id", {"id": id})
        others = [self._units[row["unit"]] for row in late if row["unit"] in self._units]
        places = homes + [unit for unit in others if unit not in homes]
        only = "rollout = $id" + (f" AND {OF_BODIES}" if bodies else "")
        found = self._whole("facts", places, only, {"id": id})
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
    ) -> list[StoredRow]:
        """Expressions over the rows in these units and in the tail."""
        sealed = self._scans.relation(table, _holding(table, units))
        found: list[StoredRow] = []
        if sealed is not None:
            found += rows(self._db, f"SELECT {names} FROM {sealed} WHERE {where}", values)
        return found + self._live(table, names, where, values)

    def _whole(
        self, table: str, units: list[Unit], where: str, values: dict[str, Any]
    ) -> list[StoredRow]:
        """The same for whole rows."""
        names = [column.name for column in schema.TABLES[table]]
        sealed = self._sealed(table, names, units, where, values)
        return sealed + self._live(table, _listed(names), where, values)

    def _sealed(
        self,
        table: str,
        names: Sequence[str],
        units: list[Unit],
        where: str,
        values: dict[str, Any],
    ) -> list[StoredRow]:
        """Columns of rows in these units. Those in which nothing stands are not read."""
        holding = _holding(table, units)
        sealed = self._scans.relation(table, holding)
        if sealed is None:
            return []
        empty = set.intersection(*(set(unit.info.empty.get(table, ())) for unit in holding))
        read = _listed([name for name in names if name not in empty])
        blank = dict.fromkeys(names)
        found = rows(self._db, f"SELECT {read} FROM {sealed} WHERE {where}", values)
        return [blank | row for row in found]

    def _live(self, table: str, names: str, where: str, values: dict[str, Any]) -> list[StoredRow]:
        if table not in self._filled:
            return []
        return list(rows(self._db, f"SELECT {names} FROM tail.{table} WHERE {where}", values))

    # -- a batch of them -------------------------------------------------------------------

    def get_many(self, ids: Sequence[str]) -> list[StoredRollout]:
        """These rollouts in this order, facts and streams folded in; unknown ids are left out."""
        wanted = list(ids)
        found = self._find_many(wanted)
        homes: set[str] = set().union(*(units for _, units in found.values()))
        messages = self._by_rollout("messages", wanted, homes)
        spans = self._by_rollout("spans", wanted, homes | self._with_late("late_spans"))
        facts = self._by_rollout("facts", wanted, homes | self._with_late("late_facts"), OF_BODIES)
        return [
            stored(found[id][0], messages.get(id, []), spans.get(id, []), facts.get(id, []))
            for id in wanted
            if id in found
        ]

    def _find_many(self, ids: list[str]) -> dict[str, tuple[StoredRow, set[str]]]:
        """Thin rows by id, each with the directories of the sealed units that hold its rollout."""
        names = columns("rollouts")
        found: dict[str, tuple[StoredRow, set[str]]] = {}
        homes = self._sealed_in("id IN (SELECT unnest($ids))", {"ids": ids})
        sealed = self._scans.relation("rollouts", homes, filename=True)
        if sealed is not None:
            names_and_unit = f"{names}, parse_dirpath(filename) AS unit"
            for row in self._among(ids, names_and_unit, sealed, "id", f"true ORDER BY {BEST_ROW}"):
                found.setdefault(row["id"], (row, {row.pop("unit")}))
        for tail in ("tail.rollouts", "tail.patched"):
            for row in self._among(ids, names, tail, "id"):
                found[row["id"]] = row, set()
        for row in self._among(ids, "id, source", "tail.homes", "id"):
            if row["id"] in found:
                found[row["id"]][1].add(row["source"])
        return found

    def _with_late(self, what: str) -> set[str]:
        """Units that hold spans or facts of rollouts that lie in others."""
        return {name for name, unit in self._units.items() if getattr(unit.info, what)}

    def _by_rollout(
        self, table: str, ids: list[str], homes: set[str], where: str = "true"
    ) -> dict[str, list[StoredRow]]:
        units = [unit for name, unit in self._units.items() if name in homes]
        made: dict[str, list[StoredRow]] = {}
        for relation in (self._scans.relation(table, _holding(table, units)), f"tail.{table}"):
            if relation is not None:
                for row in self._among(ids, columns(table), relation, "rollout", where):
                    made.setdefault(row["rollout"], []).append(row)
        return made

    def _among(
        self, ids: list[str], names: str, relation: str, id: str, where: str = "true"
    ) -> Iterable[StoredRow]:
        sql = f"SELECT {names} FROM {relation} WHERE {id} IN (SELECT unnest($ids)) AND {where}"
        return rows(self._db, sql, {"ids": ids})


def _holding(table: str, units: list[Unit]) -> list[Unit]:
    """The units that have rows of a table."""
    return [unit for unit in units if unit.info.rows.get(table, 1)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(q, names))


def _messages(found: list[StoredRow]) -> dict[int, Message]:
    """Messages by their number. One that was written again, into the next log, is the same."""
    by_number = {row["n"]: row for row in found}
    return {n: to_message(by_number[n]) for n in sorted(by_number)}


def _spans(found: list[StoredRow]) -> list[Span]:
    return expand([to_span(row) for row in sorted(found, key=lambda row: int(row["n"]))])


def stored(
    row: StoredRow, messages: list[StoredRow], spans: list[StoredRow], facts: list[StoredRow]
) -> StoredRollout:
    """A whole rollout of its rows. Of its facts, those of `OF_BODIES` are enough."""
    made = _messages(messages)
    lengths = {n: len(m.tokens) for n, m in made.items() if m.tokens is not None}
    lay(made, winners(to_facts(facts)), lengths)
    size = sum(len(m["text"] or "") + 8 * len(m["token_ids"] or ()) for m in messages)
    size += sum(len(s["inputs"] or "") + len(s["outputs"] or "") for s in spans)
    return StoredRollout(row, to_rollout(row, list(made.values()), _spans(spans)), size)
