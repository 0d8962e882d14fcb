"""Groups: siblings side by side, and the way from one group to the next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rollscope.model import grouping
from rollscope.model.grouping import GROUP, IS_ALONE, NAME

from . import flags
from .compile import Query
from .engine import Engine, select
from .rows import COLUMNS, Row, Rows
from .sql import Sql, all_of

_PLACE = (*grouping.FIELDS, "index", "superseded")


def row(engine: Engine, id: str) -> Row:
    """The thin row of a rollout, superseded or not."""
    found = _row(engine, id, COLUMNS)
    flags.added(engine, [(found.id, found)])
    return found


def siblings(engine: Engine, id: str) -> Rows:
    """The rollouts of a rollout's group, itself included, in the order of their index.

    Superseded siblings are left out, unless the rollout itself is superseded.
    """
    place = _row(engine, id, _PLACE)
    same = _same(place, grouping.shared(place))
    same += [] if place.superseded else [Sql('NOT r."superseded"')]
    columns = ", ".join(f'r."{name}"' for name in COLUMNS)
    sql = Sql(
        f"SELECT {columns} FROM rollouts r WHERE {{}} "
        'ORDER BY r."index" NULLS LAST, r."attempt" NULLS LAST, r."id"'
    )
    rows = engine.rows(sql.fill(all_of(same)))
    found = Rows(Row(COLUMNS, row) for row in rows)
    flags.added(engine, ((row.id, row) for row in found))
    return found


class Neighbours(msgspec.Struct, frozen=True):
    """Where to go from a rollout, in the same run and split; None: there is nothing there."""

    before: str | None = msgspec.field(default=None, name="previous_group")
    """The first rollout of the group before it, by step and then by name."""
    after: str | None = msgspec.field(default=None, name="next_group")
    """The first rollout of the group after it."""
    earlier: str | None = None
    """The same task at the nearest earlier step: the rollout in the same place, else the first."""
    later: str | None = None
    """The same task at the nearest later step."""


def neighbours(engine: Engine, id: str) -> Neighbours:
    """The groups beside a rollout's, and its task at other steps."""
    place = _row(engine, id, _PLACE)
    if place.step is None or grouping.is_alone(place):
        return Neighbours()
    same_run = all_of((*_same(place, ("project", "run", "split")), Sql('NOT r."superseded"')))
    return Neighbours(
        _beside(engine, place, same_run, "<", "max", "DESC"),
        _beside(engine, place, same_run, ">", "min", "ASC"),
        *_other_steps(engine, place, same_run),
    )


def _other_steps(engine: Engine, place: Row, same_run: Sql) -> tuple[str | None, str | None]:
    if place.task is None:
        return None, None
    step = place.step
    same_task = all_of((same_run, *_same(place, ("task", "dataset"))))
    nearest = Sql(
        'SELECT max(r."step") FILTER (r."step" < ?), min(r."step") FILTER (r."step" > ?) '
        "FROM rollouts r WHERE {}",
        (step, step),
    )
    earlier, later = engine.rows(nearest.fill(same_task))[0]
    # Two questions, not one: steps that are known let the engine skip all other files.
    there = Sql(
        'SELECT r."step", r."id" FROM rollouts r WHERE {} AND r."step" IN (?, ?) ORDER BY '
        'r."index" IS DISTINCT FROM ?, r."index" NULLS LAST, r."attempt" NULLS LAST, r."id"',
        (earlier, later, place.index),
    )
    first: dict[int, str] = {}
    for found, id in engine.rows(there.fill(same_task)):
        first.setdefault(found, id)
    return first.get(earlier), first.get(later)


def _beside(
    engine: Engine, place: Row, same_run: Sql, sign: str, nearest: str, direction: str
) -> str | None:
    """The nearest group on one side: at the same step, else at the nearest other one."""
    at_step = Sql(
        f'SELECT min(r."id") FROM rollouts r WHERE {{}} AND r."step" = ? AND {{}} '
        f"GROUP BY {NAME} ORDER BY row({NAME}) {direction} LIMIT 1",
        (place.step,),
    )
    in_group = Sql(f"NOT ({IS_ALONE})")
    name = Sql(f"row({NAME}) {sign} row(?, ?::VARCHAR, ?::VARCHAR, ?, ?)", grouping.name_of(place))
    rows = engine.rows(at_step.fill(same_run, all_of((in_group, name))))
    if rows:
        return str(rows[0][0])
    # Two questions, not one: a step that is known lets the engine skip all other files.
    beyond = Sql(
        f'SELECT {nearest}(r."step") FROM rollouts r WHERE {{}} AND r."step" {sign} ? AND {{}}',
        (place.step,),
    )
    other = engine.rows(beyond.fill(same_run, in_group))[0][0]
    if other is None:
        return None
    sql = Sql(at_step.text, (other,)).fill(same_run, in_group)
    return str(engine.rows(sql)[0][0])


_RECENT = 4096


def mixed(engine: Engine, query: Query) -> str | None:
    """The best rollout of the newest group whose rewards differ: the place to begin reading. If
    several are equally good, it is the first, so that the same question leads to the same place.
    The newest rollouts are searched first, and all the others only if the groups of these are dead.
    """
    steps = select(
        query,
        Sql('r."step" AS step'),
        Sql(f'ORDER BY r."step" DESC LIMIT {_RECENT}'),
        Sql('r."step" IS NOT NULL'),
    )
    recent = engine.rows(Sql("SELECT min(step) FROM ({})").fill(steps))[0][0]
    rewarded = Sql(f'isfinite(r."reward") AND NOT ({IS_ALONE})')
    for also in (all_of((rewarded, Sql('r."step" >= ?', (recent,)))), rewarded):
        columns = Sql('first(r."id" ORDER BY r."reward" DESC, r."index" NULLS LAST, r."id")')
        tail = Sql(
            f'GROUP BY {GROUP} HAVING count(*) > 1 AND min(r."reward") < max(r."reward") '
            'ORDER BY r."step" DESC NULLS LAST, max(r."time") DESC NULLS LAST, min(r."id") LIMIT 1'
        )
        rows = engine.rows(select(query, columns, tail, also))
        if rows:
            return str(rows[0][0])
    return None


def _row(engine: Engine, id: str, names: Sequence[str]) -> Row:
    columns = ", ".join(f'r."{name}"' for name in names)
    rows = engine.rows(Sql(f'SELECT {columns} FROM rollouts r WHERE r."id" = ? LIMIT 1', (id,)))
    if not rows:
        raise KeyError(f"no rollout {id!r}")
    return Row(names, rows[0])


def _same(place: Row, names: tuple[str, ...]) -> list[Sql]:
    return [
        Sql(f'r."{name}" IS NULL')
        if place[name] is None
        else Sql(f'r."{name}" = ?', (place[name],))
        for name in names
    ]
