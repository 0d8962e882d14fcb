"""What the HTTP API can be asked, as types: each field is one query parameter."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..query.facets import FACETS, HISTOGRAMS

Text = Annotated[str, Meta(max_length=4000)]
Whole = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Cursor = Annotated[str, Meta(max_length=4000, pattern="^([0-9]{1,9}~|$)")]


class Nothing(msgspec.Struct, kw_only=True):
    """No parameters."""


class SelectionOf(msgspec.Struct, kw_only=True):
    q: Text = ""
    """Query; empty: everything."""


class AnyOneOf(SelectionOf, kw_only=True):
    but: Text = ""
    """Id of the rollout that is read now, so that another one is found."""


class PlaceOf(SelectionOf, kw_only=True):
    order: Text = ""


class PageOf(SelectionOf, kw_only=True):
    order: Text = ""
    """Fields to sort by, `-` before one for descending; empty: newest step, group by group."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    at: Whole = 0
    """Place of the first row wanted; the scroll bar's way to page."""
    cursor: Cursor = ""
    """`next` of the page before; wins over `at`."""
    columns: Text = ""
    """Fields that the rows have besides `id`, with commas between; empty: all. Fewer are faster."""


class FacetsOf(SelectionOf, kw_only=True):
    keys: Text = ",".join(FACETS)
    limit: Annotated[int, Meta(ge=1, le=200)] = 12


class HistogramsOf(SelectionOf, kw_only=True):
    keys: Text = ",".join(HISTOGRAMS)
    bins: Annotated[int, Meta(ge=1, le=200)] = 40


class RibbonOf(SelectionOf, kw_only=True):
    metrics: Text = ""
    """Names of logged metrics to add, with commas between."""


class TasksOf(SelectionOf, kw_only=True):
    kind: Text = ""
    """`flipped`, `regressed`, `mixed`, `never`, `always` or `not scored`; empty: all."""
    order: Text = "-flips"
    limit: Annotated[int, Meta(ge=1, le=500)] = 200
    at: Whole = 0


class MatrixOf(SelectionOf, kw_only=True):
    across: Text = ""
    """Key whose values are the columns; empty: runs if there are several, else steps."""
    order: Text = "-spread"
    """`task`, `rollouts`, `rate`, `spread`, `difference`; `-` before it: the greatest first."""
    base: Text = ""
    """`q` of a column, to compare another with."""
    other: Text = ""
    """`q` of that other column."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    at: Whole = 0


class HistoryOf(SelectionOf, kw_only=True):
    task: Text
    dataset: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=20_000)] = 5000


class DetailOf(msgspec.Struct, kw_only=True):
    first: Whole = 0
    count: Annotated[int, Meta(ge=0, le=200)] = 0
    """So many messages come with it, from `first` on; 0: none."""


class MessagesOf(msgspec.Struct, kw_only=True):
    first: Whole = 0
    count: Annotated[int, Meta(ge=1, le=200)] = 40
    chars: Annotated[int, Meta(ge=1, le=200_000)] = 20_000
    """Longer texts are cut here; the rest can be asked for, window by window."""


class TextOf(msgspec.Struct, kw_only=True):
    start: Whole = 0
    chars: Annotated[int, Meta(ge=1, le=200_000)] = 100_000


class StripOf(msgspec.Struct, kw_only=True):
    stream: Text
    """A stream, or `ratio` (train over sampling probability) or `ref_gap`."""


class TokensOf(msgspec.Struct, kw_only=True):
    first: Whole = 0
    count: Annotated[int, Meta(ge=1, le=200)] = 40
    start: Whole = 0
    """The first token wanted of each message."""
    most: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1_000_000_000
    """So many tokens of each message at most."""


class CompareOf(msgspec.Struct, kw_only=True):
    ids: Annotated[str, Meta(max_length=2000, min_length=1)]
    """Two to eight ids with commas between; the first is what the others are held against."""


class HitsOf(SelectionOf, kw_only=True):
    find: Text = ""
    """Words to find in this rollout besides the query's own."""


class ValuesOf(msgspec.Struct, kw_only=True):
    key: Text
    prefix: Text = ""
