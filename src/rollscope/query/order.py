"""Sorting and paging: missing values and NaN come last in both directions; ties by id.

A page is continued from the values of its last row, not from a count of rows, so rollouts
that arrive meanwhile neither repeat a row nor hide one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from . import keys
from .compile import expression, json_value
from .errors import QueryError
from .sql import Sql, all_of, any_of

DEFAULT_ORDER = "-time"


class SortColumn(NamedTuple):
    """One thing to sort by: SQL that is null where it sorts last."""

    value: Sql
    down: bool
    type: type[str] | type[float] | type[bool] = str
    """What its values are in a cursor."""
    whole: bool = False
    """Are its values whole numbers? Then many rollouts share one."""


class ByTime(NamedTuple):
    """The same order for rollouts whose time is known, in a form that prunes files."""

    time: Sql
    known: Sql
    order: Sql
    newest_first: bool
    """Is it by the time at which rollouts were logged, backwards?"""


class Order(NamedTuple):
    text: str
    """As it was asked for, in one string."""
    columns: tuple[SortColumn, ...]
    by_time: ByTime | None = None

    def sql(self) -> Sql:
        """The ORDER BY list."""
        return _listed(self.columns)

    def after(self, cursor: str) -> Sql:
        """Holds for the rollouts that sort after the row that the cursor was made from."""
        last = self._decoded(cursor)
        later = []
        same: list[Sql] = []
        for column, value in zip(self.columns, last, strict=True):
            if value is None:
                same.append(Sql("{} IS NULL").fill(column.value))
                continue
            sign = "<" if column.down else ">"
            beyond = Sql(f"({{}} {sign} ? OR {{}} IS NULL)", (value,))
            later.append(all_of((*same, beyond.fill(column.value, column.value))))
            same.append(Sql("{} = ?", (value,)).fill(column.value))
        return any_of(later)

    def cursor(self, last: Sequence[Any]) -> str:
        """The place after a row, given its values of the order's columns."""
        data = json.dumps([self.text, *last]).encode()
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def _decoded(self, cursor: str) -> list[Any]:
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            text, *last = json.loads(base64.urlsafe_b64decode(padded))
            ok = len(last) == len(self.columns) and all(map(_fits, self.columns, last))
        except (ValueError, TypeError, binascii.Error):
            text, last, ok = "", [], False
        if not ok:
            raise ValueError(f"not a cursor of a page: {cursor!r}")
        if text != self.text:
            raise ValueError(f"the cursor was made for order {text!r}, not {self.text!r}")
        return list(last)


def parse_order(order: str | Sequence[str]) -> Order:
    """`"-advantage"`, `"step,-reward"` or a list of such. `-` is from the greatest down."""
    names = order.split(",") if isinstance(order, str) else list(order)
    text = ",".join(name.strip() for name in names if name.strip())
    columns: list[SortColumn] = []
    at = 0
    for name in text.split(",") if text else ():
        bare = name.removeprefix("-")
        start = at + len(name) - len(bare)
        columns += _columns(bare, bare != name, text, start)
        at += len(name) + 1
    columns.append(SortColumn(Sql('r."id"'), down=False))
    return Order(text, tuple(columns), _by_time(text, columns))


def _by_time(text: str, columns: list[SortColumn]) -> ByTime | None:
    asked = keys.find((text.split(",")[0].removeprefix("-"),))
    if asked is None or asked.key.kind != "time":
        return None
    value = expression(asked)
    known = Sql("{} <= ?", (float("inf"),)).fill(value)
    order = _listed((SortColumn(value, columns[0].down), *columns[1:]))
    return ByTime(value, known, order, columns[0].down and asked.key.name == "time")


def _listed(columns: Iterable[SortColumn]) -> Sql:
    parts = [
        Sql(f"{{}} {'DESC' if column.down else 'ASC'} NULLS LAST").fill(column.value)
        for column in columns
    ]
    return Sql.join(", ", parts)


def _fits(column: SortColumn, value: Any) -> bool:
    """Could this be a value of the column? Cursors come from outside."""
    if value is None or column.type is bool:
        return value is None or isinstance(value, bool)
    if column.type is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str)


def _columns(name: str, down: bool, text: str, start: int) -> list[SortColumn]:
    asked = keys.named(name)
    if asked is None:
        raise keys.unknown(name, text, start, start + len(name))
    kind = asked.key.kind
    if kind == "json":  # numbers first, in their order, then texts
        text_value = Sql("({} ->> '$')").fill(json_value(asked))
        number = _no_nan(Sql("TRY_CAST({} AS DOUBLE)").fill(text_value))
        return [SortColumn(number, down, float), SortColumn(text_value, down)]
    if kind in ("text", "any", "member") or not asked.key.sql:
        what = f"rollouts cannot be sorted by {name}"
        raise QueryError(what, text, start, start + len(name))
    value = expression(asked)
    if kind in ("number", "time"):
        number = Sql("({})").fill(value) if asked.key.whole else _no_nan(value)
        return [SortColumn(number, down, float, asked.key.whole)]
    return [SortColumn(Sql("({})").fill(value), down, bool if kind == "bool" else str)]


def _no_nan(value: Sql) -> Sql:
    return Sql("(CASE WHEN isnan({}) THEN NULL ELSE {} END)").fill(value, value)
