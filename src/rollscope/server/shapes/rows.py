"""Rollouts as lists show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ...model.schema import ROLLOUTS, Column

Number = float | str | None
"""A number, one of "NaN", "Infinity", "-Infinity", or null: not known."""

LISTED = [column for column in ROLLOUTS if column.listed]
"""What lists carry of a rollout."""

UNLISTED = [c for c in ROLLOUTS if not c.listed and c.source in ("field", "error")]
"""What else it was logged with: only the answer about the whole rollout carries it."""


_TYPES: dict[str, Any] = {
    "VARCHAR": str | None,
    "BIGINT": int | None,
    "DOUBLE": Number,
    "BOOLEAN": bool | None,
    "JSON": Any,
    "VARCHAR[]": list[str],
    "MAP(VARCHAR, DOUBLE)": dict[str, Number],
    "MAP(VARCHAR, VARCHAR)": dict[str, str],
}
"""What the columns of the store are in an answer, by the engine's type."""


def _field(column: Column) -> tuple[str, Any, Any]:
    """The field that carries a column. Lists and dicts are there also when they are empty."""
    kind: Any = _TYPES[column.type]
    default: Any = None
    if column.name == "id":
        kind, default = str, msgspec.NODEFAULT
    elif column.match == "time":
        kind = float | None
    elif column.is_dict:
        kind = dict[str, Any] if column.type == "JSON" else kind
        default = msgspec.field(default_factory=dict)
    elif column.type == "VARCHAR[]":
        default = msgspec.field(default_factory=list)
    return column.name, Annotated[kind, Meta(description=column.doc)], default


if TYPE_CHECKING:

    class Listable(msgspec.Struct, kw_only=True):
        def __getattr__(self, name: str) -> Any: ...

    class Unlisted(msgspec.Struct, kw_only=True):
        def __getattr__(self, name: str) -> Any: ...

else:
    Listable = msgspec.defstruct("Listable", map(_field, LISTED), kw_only=True)
    Unlisted = msgspec.defstruct("Unlisted", map(_field, UNLISTED), kw_only=True)


class RolloutRow(Listable, kw_only=True):
    """One rollout, thin: what a list shows. Its fields are the columns that the schema lists."""

    duration: Number = None
    """Seconds from its start to its end."""
    superseded: bool | None = None
    """Did a later launch make it again?"""


class ListedRow(RolloutRow, kw_only=True):
    """One rollout of a page: `id`, and those of the other fields that were asked for."""

    named: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values of the keys that were asked for by name, such as `rewards.correct` and `meta.lang`."""


class ListedPage(msgspec.Struct, kw_only=True):
    """A window of a selection."""

    rows: list[ListedRow]
    at: int
    """Place of the first row in the selection."""
    count: int
    """Rollouts in the selection."""
    superseded: int = 0
    """How many more it would be with those that a later launch replaced."""
    next: str | None = None
    """Cursor of the next page; null at the end."""
    generation: str = ""


class PlaceInList(msgspec.Struct, kw_only=True):
    """Where a rollout stands in a selection, from 0; null: it is not in it."""

    at: int | None = None


class Start(msgspec.Struct, kw_only=True):
    """Where to begin reading: the newest step's group with mixed rewards."""

    id: str | None = None


class SearchNews(msgspec.Struct, kw_only=True):
    """Told on `/api/search` while a text search goes on."""

    rows: list[RolloutRow]
    scanned: int
    total: int
    done: bool
    more: bool = False
    """It ended because it had found as many as a page holds: there may be others."""
    stopped: bool = False
    """It ended because its time was over: the rest was not looked at."""
