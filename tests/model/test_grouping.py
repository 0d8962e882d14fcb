"""A group is the same to Python and to the engine."""

from __future__ import annotations

import itertools

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Rollout
from rollscope.model.grouping import (
    FIELDS,
    GROUP,
    IS_ALONE,
    ORDER,
    PLACE,
    group_of,
    name_of,
    shared,
)

DB = duckdb.connect()

names = st.sampled_from([None, "", "7", "a"])
rollouts = st.lists(
    st.builds(
        Rollout,
        project=names,
        run=names,
        split=names,
        step=st.sampled_from([None, 0, 1]),
        dataset=names,
        task=st.sampled_from([None, "7", 7, "a"]),
        group=names,
        environment=names,
        launch=names,
    ),
    max_size=12,
)

TYPES = ", ".join(f'"{f}" {"BIGINT" if f == "step" else "VARCHAR"}' for f in FIELDS)
TABLE = f"(SELECT unnest(?::STRUCT({TYPES})[], recursive := true)) r"


def rows(found: list[Rollout]) -> list[dict[str, object]]:
    """Rollouts as the table has them: a task is text there."""
    for number, rollout in enumerate(found):
        rollout.id = str(number)
    made = [{field: getattr(rollout, field) for field in FIELDS} for rollout in found]
    return [
        row | {"task": row["task"] if row["task"] is None else str(row["task"])} for row in made
    ]


def partition(groups: dict[object, set[str]]) -> set[frozenset[str]]:
    return {frozenset(ids) for ids in groups.values()}


@given(rollouts)
def test_groups_are_the_same_to_the_engine(found: list[Rollout]) -> None:
    table = rows(found)
    by_python: dict[object, set[str]] = {}
    for rollout in found:
        by_python.setdefault(group_of(rollout), set()).add(str(rollout.id))
    sql = f"SELECT list(id) FROM {TABLE} WHERE NOT ({IS_ALONE}) GROUP BY {GROUP}"
    together = {frozenset(row[0]) for row in DB.execute(sql, [table]).fetchall()}
    alone = DB.execute(f"SELECT id FROM {TABLE} WHERE {IS_ALONE}", [table]).fetchall()
    assert together | {frozenset(row) for row in alone} == partition(by_python)


@given(rollouts)
def test_what_a_group_shares_is_shared_by_nobody_else(found: list[Rollout]) -> None:
    table = {row["id"]: row for row in rows(found)}
    for one in found:
        fields = shared(one)
        alike = {id for id, row in table.items() if all(row[f] == table[one.id][f] for f in fields)}
        assert alike == {other.id for other in found if group_of(other) == group_of(one)}


@given(rollouts)
def test_sorted_by_the_order_a_group_stands_together(found: list[Rollout]) -> None:
    order = ", ".join(f'r."{field}"' for field in (*PLACE, *ORDER.split(",")))
    sql = f"SELECT r.id FROM {TABLE} ORDER BY {order}"
    ids = [row[0] for row in DB.execute(sql, [rows(found)]).fetchall()]
    by_id = {rollout.id: rollout for rollout in found}
    seen = [group_of(by_id[id]) for id in ids]
    changes = sum(a != b for a, b in itertools.pairwise(seen))
    assert changes == max(0, len(set(seen)) - 1)


def test_a_group_is_the_trainers_own_or_a_task_of_a_dataset_and_environment() -> None:
    one = Rollout(run="r", step=1, group="uid", task="7", dataset="math")
    assert group_of(one) == group_of(Rollout(run="r", step=1, group="uid", task="8"))
    task = Rollout(run="r", step=1, task="7", dataset="math")
    assert group_of(task) == group_of(Rollout(run="r", step=1, task=7, dataset="math"))
    assert group_of(task) != group_of(Rollout(run="r", step=1, task="7", dataset="code"))
    assert group_of(task) != group_of(Rollout(run="r", step=2, task="7", dataset="math"))
    again = Rollout(run="r", step=1, group="uid", launch="second")
    assert group_of(one) != group_of(again), "the same script gives the same names"
    assert name_of(Rollout(group="7")) != name_of(Rollout(task="7")), "a task is no group's name"
    assert name_of(Rollout(id="a")) != name_of(Rollout(id="b")), "without either one is alone"
