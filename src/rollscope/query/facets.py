"""What a selection is made of: counts per value, and histograms of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rollscope.model.schema import ROLLOUTS

from . import flags, keys
from .compile import Query, expression, json_value
from .engine import Engine, select, with_hits
from .keys import Asked
from .sql import Sql

FACETS = tuple(c.key for c in sorted(ROLLOUTS, key=lambda c: c.facet) if c.facet)
"""Keys that a person narrows a selection by."""

HISTOGRAMS = tuple(c.key for c in sorted(ROLLOUTS, key=lambda c: c.histogram) if c.histogram)
"""The numbers that people look at first."""


class FacetValue(msgspec.Struct, frozen=True):
    value: Any
    count: int


class Facet(msgspec.Struct, frozen=True):
    """How often each value of a key stands in the selection, the commonest first."""

    key: str
    values: list[FacetValue]
    missing: int
    """Rollouts without a value."""
    more: int
    """Values that are not listed."""


class Histogram(msgspec.Struct, frozen=True):
    """Counts of a number in equal bars. The last bar includes its upper end."""

    key: str
    low: float | None
    """None: there is no finite number."""
    high: float | None
    """End of the last bar."""
    most: float | None
    """The greatest finite number. Of whole numbers the last bar may end after it."""
    mean: float | None
    """Of the finite numbers."""
    counts: list[int]
    missing: int
    nan: int
    infinite: int
    not_finite: int
    """`nan` and `infinite` together."""
    outside: int
    """Finite, but outside the bounds that were asked for."""


def facets(
    engine: Engine, query: Query, names: Sequence[str] = FACETS, limit: int = 12
) -> list[Facet]:
    """Facets of a selection. Plain keys are counted in one pass, those with lists in one each."""
    asked = [_facet_key(name) for name in names]
    plain = [key for key in asked if key.key.kind not in _LISTS]
    counted: dict[str, list[tuple[Any, int]]] = dict(
        zip(
            (key.name for key in plain),
            _count_each(engine, query, [expression(key) for key in plain]),
            strict=True,
        )
    )
    for key in asked:
        if key.key.kind in _LISTS:
            counted[key.name] = _count_member(engine, query, key)
    return [_facet(name, counted[key.name], limit) for name, key in zip(names, asked, strict=True)]


def histograms(
    engine: Engine, query: Query, names: Sequence[str] = HISTOGRAMS, bars: int = 30
) -> list[Histogram]:
    """Histograms of a selection, each over all its finite numbers: two passes for all."""
    asked = [_number_key(name) for name in names]
    spans = _spans(engine, query, asked)
    return _count_bars(engine, query, [_Bars.over(span, bars) for span in spans])


def histogram(
    engine: Engine,
    query: Query,
    name: str,
    bars: int = 30,
    low: float | None = None,
    high: float | None = None,
) -> Histogram:
    """One histogram, between given bounds where they are given."""
    (span,) = _spans(engine, query, [_number_key(name)])
    chosen = _Bars.over(span, bars)
    if low is not None or high is not None:
        low = span.low if low is None else low
        high = span.high if high is None else high
        chosen = _Bars(span, low, high, bars)
    return _count_bars(engine, query, [chosen])[0]


class StepHistogram(msgspec.Struct, frozen=True):
    """Histograms of one number, a step each, with the same bars."""

    key: str
    low: float | None
    high: float | None
    steps: list[int]
    counts: list[list[int]]


def by_step(engine: Engine, query: Query, name: str = "reward", bars: int = 20) -> StepHistogram:
    """How the distribution of a number moves over the steps (a heat map).

    The numbers are read once; ends and bars are found from them.
    """
    asked = _number_key(name)
    value = _double(asked)
    picked = select(
        query, Sql('r."step" AS step, {} AS x').fill(value), None, Sql("isfinite({})").fill(value)
    )
    bar = _bar(Sql("x"), Sql("low"), Sql("high"), bars)
    counted = Sql(
        "WITH numbers AS MATERIALIZED ({}), ends AS (SELECT min(x) AS low, max(x) AS high "
        "FROM numbers) SELECT step, {}, count(*), any_value(low), any_value(high) "
        "FROM numbers, ends GROUP BY 1, 2"
    )
    low = high = None
    counts: dict[int, list[int]] = {}
    for step, at, count, low, high in engine.rows(counted.fill(picked, bar)):  # noqa: B007
        if step is not None:
            counts.setdefault(step, [0] * bars)[at] = count
    steps = sorted(counts)
    return StepHistogram(name, low, high, steps, [counts[step] for step in steps])


def values(
    engine: Engine, query: Query, name: str, beginning: str = "", limit: int = 20
) -> list[FacetValue]:
    """Values of a key that begin so, the commonest first: for completion."""
    asked = keys.named(name)
    if asked is not None and asked.key.name in flags.KEYS:
        known = flags.ids(engine, query, asked.key.name)
        named = [(id, n) for id, n in known if id.lower().startswith(beginning.lower())]
        return [FacetValue(id, count) for id, count in named[:limit]]
    asked = _facet_key(name)
    value = expression(asked)
    if asked.key.kind in _LISTS:
        value = Sql("unnest({})").fill(_entries(asked))
    inner = select(query, Sql("{} AS value").fill(value))
    outer = Sql(
        "SELECT value::VARCHAR, count(*) AS n FROM ({}) WHERE value IS NOT NULL "
        f"AND starts_with(lower(value::VARCHAR), lower(?)) GROUP BY 1 ORDER BY n DESC, 1 "
        f"LIMIT {int(limit)}",
        (beginning,),
    )
    return [FacetValue(value, count) for value, count in engine.rows(outer.fill(inner))]


def _facet_key(name: str) -> Asked:
    asked = keys.asked(name)
    if asked.key.kind in ("text", "any") or not asked.key.sql:
        raise ValueError(f"the values of {name} cannot be counted")
    return asked


def _number_key(name: str) -> Asked:
    asked = keys.asked(name)
    if asked.key.kind not in ("number", "time", "json") or not asked.key.sql:
        raise ValueError(f"{name} is no number")
    return asked


_LISTS = ("member", "json")
"""Kinds of keys with several values in one rollout."""


def _entries(asked: Asked) -> Sql:
    """The list of values that a rollout has for such a key; null where it has none."""
    if asked.key.kind != "json":
        return Sql("CASE WHEN len({}) > 0 THEN {} END").fill(*[expression(asked)] * 2)
    value = json_value(asked)
    sql = Sql(
        "CASE WHEN json_type({}) = 'ARRAY' THEN list_distinct(json_extract_string({}, '$[*]')) "
        "WHEN ({} ->> '$') IS NOT NULL THEN [{} ->> '$'] END"
    )
    return sql.fill(value, value, value, value)


def _double(asked: Asked) -> Sql:
    if asked.key.kind == "json":
        return Sql("TRY_CAST({} ->> '$' AS DOUBLE)").fill(json_value(asked))
    return Sql("CAST({} AS DOUBLE)").fill(expression(asked))


def _count_each(engine: Engine, query: Query, values: list[Sql]) -> list[list[tuple[Any, int]]]:
    """How often each value of each of these expressions stands in a selection, in one pass."""
    if not values:
        return []
    names = [f"f{i}" for i in range(len(values))]
    columns = Sql.join(
        ", ", (Sql(f"{{}} AS {n}").fill(value) for n, value in zip(names, values, strict=True))
    )
    sql = Sql(
        f"SELECT grouping_id({', '.join(names)}), {', '.join(names)}, count(*) "
        f"FROM (SELECT {{}} FROM rollouts r WHERE {{}}) "
        f"GROUP BY GROUPING SETS ({', '.join(f'({n})' for n in names)})"
    ).fill(columns, query.where)
    counted: list[list[tuple[Any, int]]] = [[] for _ in values]
    everything = (1 << len(values)) - 1
    place = {everything & ~(1 << (len(values) - 1 - i)): i for i in range(len(values))}
    for grouping, *found, count in engine.rows(with_hits(query, sql)):
        i = place[grouping]
        counted[i].append((found[i], count))
    return counted


def _count_member(engine: Engine, query: Query, asked: Asked) -> list[tuple[Any, int]]:
    if asked.key.name == "flag" and engine.reader.found.any:
        return list(flags.counted(engine, query))
    inner = select(query, Sql("coalesce({}, [NULL]) AS list").fill(_entries(asked)))
    sql = Sql("SELECT entry, count(*) FROM (SELECT unnest(list) AS entry FROM ({})) GROUP BY 1")
    return [(entry, count) for entry, count in engine.rows(sql.fill(inner))]


def _facet(name: str, counted: list[tuple[Any, int]], limit: int) -> Facet:
    present = [(value, count) for value, count in counted if value is not None]
    present.sort(key=lambda item: (-item[1], str(item[0])))
    missing = sum(count for value, count in counted if value is None)
    listed = [FacetValue(value, count) for value, count in present[:limit]]
    return Facet(name, listed, missing, max(0, len(present) - limit))


class _Span(NamedTuple):
    """Where the finite values of a key lie."""

    asked: Asked
    low: float | None
    high: float | None
    mean: float | None


class _Bars(NamedTuple):
    """The bars of one histogram."""

    span: _Span
    low: float | None
    high: float | None
    bars: int

    @classmethod
    def over(cls, span: _Span, bars: int) -> _Bars:
        """So many bars over all values. Those of whole numbers have a whole width, so there may
        be fewer: otherwise some would hold one number and some two."""
        if span.low is None or span.high is None or not span.asked.key.whole:
            return cls(span, span.low, span.high, bars)
        numbers = int(span.high - span.low) + 1
        width = -(-numbers // bars)
        bars = -(-numbers // width)
        return cls(span, span.low, span.low + width * bars, bars)


def _spans(engine: Engine, query: Query, asked: list[Asked]) -> list[_Span]:
    """Where the finite values of these keys lie, in one pass."""
    if not asked:
        return []
    each = Sql(", ".join(f"{how}({{}}) FILTER (isfinite({{}}))" for how in ("min", "max", "avg")))
    columns = Sql.join(", ", (each.fill(*[_double(key)] * 6) for key in asked))
    found = engine.rows(select(query, columns))[0]
    return [_Span(key, *found[3 * i : 3 * i + 3]) for i, key in enumerate(asked)]


def _number(value: float) -> Sql:
    return Sql("?::DOUBLE", (value,))


def _bar(value: Sql, low: Sql, high: Sql, bars: int) -> Sql:
    """The number of the bar that a value between the bounds falls into."""
    # Halves keep the width finite where low and high lie at the two ends of all numbers.
    scaled = Sql(
        f"CASE WHEN {{}} <= {{}} THEN 0 ELSE TRY_CAST(least({bars - 1}, "
        f"floor(({{}} / 2 - {{}} / 2) / (({{}} / 2 - {{}} / 2) / {bars}))) AS INTEGER) END"
    )
    return scaled.fill(high, low, value, low, high, low)


_MISSING, _NAN, _INFINITE, _OUTSIDE = -1, -2, -3, -4
"""Stands for the number of a bar if a value falls into none."""


def _count_bars(engine: Engine, query: Query, wanted: list[_Bars]) -> list[Histogram]:
    """Bars are grouped and counted; the engine's own histograms take twice as long."""
    counted = _count_each(engine, query, [_place(bars) for bars in wanted])
    made = []
    for (span, low, high, bars), found in zip(wanted, counted, strict=True):
        counts = [0] * (bars if low is not None and high is not None else 0)
        other = dict.fromkeys((_MISSING, _NAN, _INFINITE, _OUTSIDE), 0)
        for at, count in found:
            if at is None:  # the bounds lie too near to each other to tell
                other[_OUTSIDE] += count
            elif at < 0:
                other[at] += count
            else:
                counts[at] = count
        missing, nan, infinite, outside = other.values()
        numbers = (low, high, span.high, span.mean, counts, missing, nan, infinite, nan + infinite)
        made.append(Histogram(span.asked.name, *numbers, outside))
    return made


def _place(bars: _Bars) -> Sql:
    """Where a value is counted: the number of its bar, or why it is in none."""
    value, low, high = _double(bars.span.asked), bars.low, bars.high
    inside = Sql("")
    if low is not None and high is not None:
        bar = _bar(value, _number(low), _number(high), bars.bars)
        inside = Sql("WHEN {} BETWEEN ? AND ? THEN {}", (low, high)).fill(value, bar)
    sql = (
        f"CASE WHEN {{}} IS NULL THEN {_MISSING} WHEN isnan({{}}) THEN {_NAN} "
        f"WHEN isinf({{}}) THEN {_INFINITE} {{}} ELSE {_OUTSIDE} END"
    )
    return Sql(sql).fill(value, value, value, inside)
