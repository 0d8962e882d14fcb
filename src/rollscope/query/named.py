"""Keys that end in a name of the user's own: which there are is found by looking at the data.

`rewards.correct` and `meta.lang.code` are keys like any other, but no schema knows them. A sample
of the rollouts tells which ones there are, and what their values are like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from rollscope.store.read.records import from_json

from .compile import Query
from .engine import Engine, select
from .keys import Asked, written
from .rows import Row
from .sql import Sql

NAMED = ("rewards.*", "meta.*")
"""Keys with a name of the user's own."""

SAMPLE = 2000
"""Rollouts that are looked at: a key that one in a thousand has is found in six cases of seven."""

DEPTH = 3
"""So deep objects in objects are followed."""

FEW = 50
"""A text with more values than this is counted only if its values repeat."""

SHORT = 80
"""Characters of a value that is worth counting."""

CUT = 300
"""Characters of a value in a row of a list."""


class NamedKey(msgspec.Struct, frozen=True):
    """A key such as `rewards.correct`, with what its values are like in a sample."""

    key: str
    """As it is written in a query."""
    kind: Literal["number", "text"]
    """`number` if all values are numbers."""
    share: float
    """Of the rollouts that were looked at, those that have a value."""
    countable: bool
    """Is it worth counting its values? Not if nearly each rollout has one of its own."""


def named_keys(engine: Engine, query: Query) -> list[NamedKey]:
    """The keys below `rewards` and `meta` in a selection; of each, the most frequent first."""
    sample = select(query, Sql('r."id"'), Sql(f'ORDER BY hash(r."id") LIMIT {SAMPLE}'))
    rows = engine.rows(
        Sql('SELECT r."rewards", r."meta" FROM rollouts r WHERE r."id" IN ({})').fill(sample)
    )
    found: dict[tuple[str, str], list[Any]] = {}
    for rewards, meta in rows:
        for name, value in (rewards or {}).items():
            found.setdefault(("rewards", name), []).append(value)
        data = from_json(meta)
        for name, value in _leaves(data if isinstance(data, dict) else {}):
            found.setdefault(("meta", name), []).append(value)
    order = {"rewards": 0, "meta": 1}
    ranked = sorted(found, key=lambda at: (order[at[0]], -len(found[at]), at[1]))
    return [_named(head, name, found[head, name], len(rows)) for head, name in ranked if name]


def _leaves(data: dict[str, Any], depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Values by their names with dots between; of a list, its entries are the values."""
    for name, value in data.items():
        if isinstance(value, dict):
            if depth > 1:
                for rest, leaf in _leaves(value, depth - 1):
                    yield f"{name}.{rest}", leaf
        elif value is not None:
            yield name, value


def _named(head: str, name: str, values: list[Any], looked: int) -> NamedKey:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    entries = Counter(
        str(entry)[: SHORT + 1]
        for value in values
        for entry in (value if isinstance(value, list) else [value])
    )
    repeat = len(entries) <= FEW or len(entries) <= len(values) / 4
    countable = repeat and all(len(entry) <= SHORT for entry in entries)
    kind: Literal["number", "text"] = "number" if numbers else "text"
    return NamedKey(written((head, name)), kind, len(values) / looked, countable)


def named_value(row: Row, asked: Asked) -> Any:
    """The value of such a key in a row that has its column: as `compile.json_value` finds it."""
    data = row[asked.key.columns[0]]
    if asked.key.kind != "json":
        return (data or {}).get(asked.path[0])
    whole = ".".join(asked.path)
    if isinstance(data, dict) and data.get(whole) is not None:
        return data[whole]
    for piece in asked.path:
        if isinstance(data, dict):
            data = data.get(piece)
        elif isinstance(data, list) and piece.isdigit() and int(piece) < len(data):
            data = data[int(piece)]
        else:
            return None
    return data


def told(value: Any) -> Any:
    """A value as a row of a list tells it: lists and objects as JSON, and what is long is cut."""
    if isinstance(value, (dict, list)):
        value = msgspec.json.encode(value).decode()
    return value[:CUT] + "…" if isinstance(value, str) and len(value) > CUT else value
