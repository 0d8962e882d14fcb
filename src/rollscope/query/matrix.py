"""Tasks against runs, checkpoints or models: a matrix of rates.

A row is a task, a column one value of a key (`run`, `step`, `meta.model`). Many steps become
ranges of steps. Each column says by which terms its rollouts are found, so that every number can
be a link.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from rollscope.model.solved import RATE, SCORED, SOLVED

from . import keys
from .compile import Query, expression, json_value
from .engine import Engine, select
from .keys import Asked
from .overview import exactly
from .sql import Sql

COLUMNS = 64
"""So many columns at most: those with the most rollouts. The others are counted."""

VALUES = 24
"""A number with more values than this becomes ranges."""

ORDERS = ("task", "rollouts", "rate", "spread", "difference")


class MatrixColumn(msgspec.Struct, frozen=True):
    """A column: the rollouts of a run, of a range of steps, or with some other value of a key."""

    name: str | None
    """The value, or `FIRST..LAST`. None: rollouts without a value."""
    project: str | None
    """Of runs; otherwise none."""
    q: str
    """Terms that find its rollouts, to be added to the query."""
    count: int = msgspec.field(name="rollouts")
    """Of tasks: rollouts of no task are in no cell."""
    scored: int
    """Those with a reward that is not NaN."""
    rate: float | None
    """Share of the scored ones that are solved."""
    reward: float | None
    """Mean of the finite rewards."""


class Cell(msgspec.Struct, frozen=True):
    """A task in a column. Where it has no rollout, there is no cell."""

    column: int
    """Its place among the columns."""
    count: int = msgspec.field(name="rollouts")
    scored: int
    rate: float | None
    reward: float | None


class TaskCells(msgspec.Struct, frozen=True):
    """A row: one task in every column that has rollouts of it."""

    dataset: str | None
    task: str
    count: int = msgspec.field(name="rollouts")
    rate: float | None
    """Over all columns."""
    spread: float | None
    """The highest rate in a column less the lowest, those left out included; None: of one only."""
    difference: float | None
    """The rate in one column less that in the base; None where either is not known."""
    cells: list[Cell]


class Matrix(msgspec.Struct, frozen=True):
    """A window of the tasks of a selection, each by the values of a key."""

    across: str
    """The key whose values are the columns."""
    columns: list[MatrixColumn]
    left_out: int
    """Values beyond the columns: those with the fewest rollouts."""
    tasks: list[TaskCells]
    count: int
    """All tasks of the selection."""


def matrix(
    engine: Engine,
    query: Query,
    across: str = "",
    order: str = "-spread",
    base: str = "",
    other: str = "",
    limit: int = 1000,
    at: int = 0,
    solved: float = SOLVED,
) -> Matrix:
    """The matrix of a selection; `base` and `other` are the `q` of the columns to compare."""
    asked = _column_key(across or _usual(engine, query))
    where, found = _columns(engine, query, asked, solved)
    kept = _kept(found)
    named = [_told(asked, column, found) for column in kept]
    pair = [next((c for c, told in zip(kept, named, strict=True) if told.q == q), None)
            for q in (base, other)]  # fmt: skip
    cell = Sql('{} AS project, {} AS value, r."dataset" AS dataset, r."task" AS task').fill(*where)
    cells = select(query, Sql.join(", ", (cell, Sql(_NUMBERS, (solved,)))), _EACH, _HAS_TASK)
    rows = Sql(_ROWS.format(order=_order_by(order)), (int(limit), int(at)))
    places = {_place(column.project, column.value): n for n, column in enumerate(kept)}
    tasks: dict[tuple[str | None, str], TaskCells] = {}
    for project, at_value, dataset, task, n, rate, spread, differs, *told in engine.rows(
        rows.fill(cells, *map(_is, reversed(pair)))
    ):
        row = tasks.setdefault(
            (dataset, task), TaskCells(dataset, task, n, rate, spread, differs, [])
        )
        if (place := places.get(_place(project, at_value))) is not None:
            row.cells.append(Cell(place, *told))
    for row in tasks.values():
        row.cells.sort(key=lambda cell: cell.column)
    ((count,),) = engine.rows(select(query, Sql(_TASKS), None, _HAS_TASK))
    return Matrix(asked.name, named, len(found) - len(kept), list(tasks.values()), count)


class _Column(NamedTuple):
    """A column as the engine tells it."""

    project: str | None
    value: Any
    """Of ranges, the first number in it."""
    rollouts: int
    scored: int
    rate: float | None
    reward: float | None
    width: int = 0
    """Numbers in a range; 0: it is one value."""


_HAS_TASK = Sql('r."task" IS NOT NULL')
_TASKS = 'count(DISTINCT (r."dataset", r."task"))'
_NUMBERS = f"""count(*) AS n, {SCORED} AS scored, {RATE} AS rate,
    avg(r."reward") FILTER (isfinite(r."reward")) AS reward"""
_EACH = Sql("GROUP BY ALL")
_ROWS = """
WITH cells AS ({{}}),
tasks AS (
    SELECT dataset, task, sum(n)::BIGINT AS rollouts,
        sum(rate * scored) / nullif(sum(scored), 0) AS rate,
        CASE WHEN count(rate) > 1 THEN max(rate) - min(rate) END AS spread,
        max(rate) FILTER ({{}}) - max(rate) FILTER ({{}}) AS difference
    FROM cells GROUP BY dataset, task
),
shown AS (SELECT *, row_number() OVER (ORDER BY {order}) AS place FROM tasks
    ORDER BY place LIMIT ? OFFSET ?)
SELECT project, value, s.dataset, s.task, rollouts, s.rate, spread, difference,
    n, scored, c.rate, reward
FROM shown s JOIN cells c ON c.task = s.task AND c.dataset IS NOT DISTINCT FROM s.dataset
ORDER BY place"""


def _order_by(order: str) -> str:
    name, way = order.removeprefix("-"), "DESC" if order.startswith("-") else "ASC"
    if name not in ORDERS:
        raise ValueError(f"a matrix cannot be sorted by {name!r}: {', '.join(ORDERS)}")
    return f"{name} {way} NULLS LAST, task, dataset"


def _place(project: str | None, value: Any) -> tuple[str | None, Any]:
    """What equals itself, NaN as well."""
    return project, "NaN" if isinstance(value, float) and math.isnan(value) else value


def _is(column: _Column | None) -> Sql:
    """Is a cell in this column?"""
    if column is None:
        return Sql("FALSE")
    given = (column.project, column.value)
    return Sql("project IS NOT DISTINCT FROM ? AND value IS NOT DISTINCT FROM ?", given)


def _usual(engine: Engine, query: Query) -> str:
    """Several runs stand beside each other, else the steps of one, else its splits."""
    columns = Sql('count(DISTINCT (r."project", r."run")), count(DISTINCT r."step")')
    ((runs, steps),) = engine.rows(select(query, columns, None, _HAS_TASK))
    return "run" if runs > 1 else "step" if steps > 1 else "split"


def _column_key(name: str) -> Asked:
    asked = keys.asked(name)
    if asked.key.kind not in ("number", "equal", "bool", "json") or not asked.key.sql:
        raise ValueError(f"the values of {name} cannot be columns: take run, step, meta.NAME, ...")
    return asked


def _columns(
    engine: Engine, query: Query, asked: Asked, solved: float
) -> tuple[tuple[Sql, Sql], list[_Column]]:
    """Project and value of a rollout's column as SQL, and all columns, in order."""
    is_json = asked.key.kind == "json"
    value = Sql("({} ->> '$')").fill(json_value(asked)) if is_json else expression(asked)
    project = Sql('r."project"' if asked.name == "run" else "NULL::VARCHAR")

    def counted(value: Sql, width: int = 0) -> list[_Column]:
        columns = Sql.join(", ", (project, value, Sql(_NUMBERS, (solved,))))
        rows = engine.rows(select(query, columns, _EACH, _HAS_TASK))
        return [_Column(*row)._replace(width=width) for row in rows]

    columns = counted(value)
    numbers = [column.value for column in columns if column.value is not None]
    if asked.key.whole and len(numbers) > VALUES:
        width = _width(max(numbers) - min(numbers) + 1)
        value = Sql("CAST(floor({} / ?) * ? AS BIGINT)", (width, width)).fill(value)
        columns = counted(value, width)
    return (project, value), sorted(columns, key=_in_order)


def _width(span: int) -> int:
    """1, 2 or 5, or that times a power of ten: at most twenty ranges span so many numbers."""
    least = math.ceil(span / (VALUES - 4))
    width = 1
    while width < least:
        width = width * 5 // 2 if str(width)[0] == "2" else width * 2
    return width


def _in_order(column: _Column) -> tuple[Any, ...]:
    """By project, then by value: numbers in texts count as numbers, and no value comes last."""
    value = column.value
    if isinstance(value, str):
        pieces = re.split(r"([0-9]+)", value)
        value = [int(piece) if n % 2 else piece for n, piece in enumerate(pieces)]
    elif isinstance(value, float) and math.isnan(value):
        return (column.project or "", 1, 0)
    return (column.project or "", 2 if value is None else 0, 0 if value is None else value)


def _kept(columns: list[_Column]) -> list[_Column]:
    most = sorted(range(len(columns)), key=lambda n: -columns[n].rollouts)[:COLUMNS]
    return [columns[n] for n in sorted(most)]


def _told(asked: Asked, column: _Column, columns: list[_Column]) -> MatrixColumn:
    name, q = _named(asked.name, column)
    if len({other.project for other in columns}) > 1:
        q += " " + (exactly("project", column.project) if column.project else "project:none")
    return MatrixColumn(name, column.project, q, *column[2:6])


def _named(key: str, column: _Column) -> tuple[str | None, str]:
    """What a column is called, and the term that finds it."""
    value = column.value
    if value is None:
        return None, f"{key}:none"
    if isinstance(value, str):
        return value, exactly(key, value)
    if isinstance(value, bool):
        name = "true" if value else "false"
    elif column.width:
        name = f"{value}..{value + column.width - 1}"
    else:
        name = str(int(value)) if float(value).is_integer() else repr(value)
    return name, f"{key}:{name}"
