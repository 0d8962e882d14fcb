"""A field of a rollout is declared once: its type in `Rollout`, everything else in its `Column`."""

from __future__ import annotations

import typing

import pytest

from rollscope.model import Error, Rollout
from rollscope.model.schema import FIELDS, ROLLOUTS, SCALARS, Column, scalars

BESIDE = {"messages", "spans", "error"}
"""What of a rollout lies in tables, or columns, of its own."""

TYPES = {
    "VARCHAR": (str | None, str | int | None),
    "BIGINT": (int | None,),
    "DOUBLE": (float | None,),
    "BOOLEAN": (bool | None,),
    "MAP(VARCHAR, DOUBLE)": (dict[str, float],),
    "MAP(VARCHAR, VARCHAR)": (dict[str, str],),
}


def test_every_field_of_a_rollout_has_a_column_and_none_has_two() -> None:
    assert sorted(column.name for column in FIELDS) == sorted(
        set(Rollout.__struct_fields__) - BESIDE
    )
    errors = [column.name for column in ROLLOUTS if column.source == "error"]
    assert errors == [f"error_{name}" for name in Error.__struct_fields__]


@pytest.mark.parametrize("column", FIELDS, ids=lambda column: column.name)
def test_a_column_holds_what_its_field_may_be(column: Column) -> None:
    said = typing.get_type_hints(Rollout)[column.name]
    if column.type == "JSON":
        assert said == (dict[str, typing.Any] if column.is_dict else typing.Any)
    else:
        assert said in TYPES[column.type]


def test_scalars_are_what_is_known_and_nothing_else() -> None:
    rollout = Rollout(id="a", task=7, step=0, reward=0.0, truncated=False, time=3.0, meta={"x": 1})
    known = {"id": "a", "task": 7, "step": 0, "reward": 0.0, "truncated": False}
    assert scalars(rollout) == known
    assert scalars(rollout, without=("id", "task")) == {
        name: value for name, value in known.items() if name not in ("id", "task")
    }
    assert not {"time", "start", "end", "meta", "rewards", "open", "turns"} & set(SCALARS)
