"""Thin rows: one rollout as the table `rollouts` has it, without its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rollscope.model import Rollout, show
from rollscope.model.schema import ROLLOUTS
from rollscope.store.read.records import from_json

_JSON = {column.name for column in ROLLOUTS if column.type == "JSON"}

COLUMNS = (*(column.name for column in ROLLOUTS), "superseded")
"""Every column of the table `rollouts`."""


SHOWN = ("id", "run", "step", "split", "task", "index", "reward", "advantage", "fate", "preview")
"""Columns that a notebook shows."""


class Rows(list["Row"]):
    """Rows that show themselves in a notebook: a group."""

    def _repr_html_(self) -> str:
        known = [name for name in SHOWN if self and name in self[0]]
        return show.table(known, ([row[name] for name in known] for row in self))


class Row:
    """One rollout, thin: `row.id`, `row.step`, `row.reward`, ... as the schema names them.

    What is not known is None. A column that was not asked for raises, so that it cannot be
    taken for a missing value.
    """

    __slots__ = ("_values",)

    def __init__(self, columns: Sequence[str], values: Sequence[Any]) -> None:
        self._values = {
            name: from_json(value) if name in _JSON else value
            for name, value in zip(columns, values, strict=True)
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values)
            raise AttributeError(f"this row has no {name!r}; it has {known}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self._values == other._values

    def _repr_html_(self) -> str:
        known = [(name, value) for name, value in self._values.items() if value not in (None, [])]
        return show.table(("", ""), known)

    def __hash__(self) -> int:
        return hash(self._values.get("id"))

    def __repr__(self) -> str:
        shown = ("id", "run", "step", "split", "task", "index", "reward", "fate")
        known = [f"{n}={self._values[n]!r}" for n in shown if self._values.get(n) is not None]
        return f"Row({', '.join(known)})"

    def add_flags(self, found: Sequence[str]) -> None:
        """Checks found something: their ids are added to those that were annotated."""
        self._values["flags"] = sorted({*(self._values["flags"] or ()), *found})

    def asdict(self) -> dict[str, Any]:
        """A plain dict of the columns that were asked for."""
        return dict(self._values)


class OpenedRollout(NamedTuple):
    """A rollout that is being read."""

    row: Row
    """Its thin row, superseded or not."""
    rollout: Rollout | None
    """None: it has too many messages to be read whole."""
