"""Rollouts as rows of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ..model.normalise import finite
from ..model.schema import ROLLOUTS, Column
from ..query.keys import Asked
from ..query.named import named_value, told
from ..query.rows import COLUMNS as ALL
from ..query.rows import Row
from . import shapes as s
from .shapes.rows import UNLISTED

FIELDS = s.RolloutRow.__struct_fields__

_FROM = {"duration": ("start", "end")}
"""Fields that are made of other columns than the one of their name."""


NONE: Mapping[str, Asked] = {}


def columns(fields: Iterable[str] = FIELDS, named: Mapping[str, Asked] = NONE) -> tuple[str, ...]:
    """The store's columns that these fields of a row, and keys of the user's own, are made from."""
    plain = [name for field in fields for name in _FROM.get(field, (field,)) if name in ALL]
    return tuple(dict.fromkeys((*plain, *(key.key.columns[0] for key in named.values()))))


COLUMNS = columns()
"""Those of a whole row."""


def number(value: Any) -> s.Number:
    """A number as JSON can carry it."""
    return None if value is None else finite(float(value))


def _shape(column: Column) -> Callable[[Any], Any] | None:
    """What makes a value of this column one that an answer carries; None: it is one."""
    if column.type == "DOUBLE" and column.match != "time":
        return number
    if column.type == "MAP(VARCHAR, DOUBLE)":
        return lambda parts: {name: number(value) for name, value in (parts or {}).items()}
    if column.is_dict:
        return lambda entries: entries or {}
    return (lambda entries: entries or []) if column.type == "VARCHAR[]" else None


_SHAPED = {column.name: shape for column in ROLLOUTS if (shape := _shape(column)) is not None}


def _value(row: Row, field: str) -> Any:
    if field == "duration":
        known = row.start is not None and row.end is not None
        return number(row.end - row.start) if known else None
    value = row[field]
    return _SHAPED[field](value) if field in _SHAPED else value


def thin(row: Row) -> s.RolloutRow:
    """One rollout with all that a list can show."""
    return s.RolloutRow(**{field: _value(row, field) for field in FIELDS})


def unlisted(row: Row) -> dict[str, Any]:
    """What lists do not carry of a rollout."""
    return {column.name: _value(row, column.name) for column in UNLISTED}


_UNASKED = dict.fromkeys((*FIELDS, "named"), msgspec.UNSET)


def listed(row: Row, fields: tuple[str, ...], named: Mapping[str, Asked]) -> s.ListedRow:
    """One rollout with these fields: the others are not in the answer."""
    asked = {field: _value(row, field) for field in fields}
    if named:
        asked["named"] = {name: _named(row, key) for name, key in named.items()}
    return s.ListedRow(**_UNASKED | asked)


def _named(row: Row, key: Asked) -> Any:
    value = told(named_value(row, key))
    return number(value) if isinstance(value, float) else value
