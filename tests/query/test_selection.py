"""Reading what a query found: order, paging, counting, taking it elsewhere."""

from __future__ import annotations

import base64
import json
import math
import sys
from typing import Any

import pytest

from rollscope.query import NotFound, Store
from rollscope.query.groups import Neighbours

from .tables import Tables

REWARDS = [0.5, math.nan, None, -1.0, math.inf, 0.5, None, -math.inf]


def rows(**more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"r{i}", "reward": reward, "step": i // 3, "time": 100.0 + i, "task": f"t{i % 2}"}
        | more
        for i, reward in enumerate(REWARDS)
    ]


@pytest.fixture(scope="module", params=[True, False], ids=["one scan", "several"])
def store(request: pytest.FixtureRequest) -> Store:
    tables = Tables(rows())
    tables.one_scan = request.param
    return Store(reader=tables)


def ids(selection: Any) -> list[str]:
    return [row.id for row in selection]


def test_missing_and_nan_sort_last_both_ways(store: Store) -> None:
    assert ids(store.rollouts(order="reward"))[:5] == ["r7", "r3", "r0", "r5", "r4"]
    assert ids(store.rollouts(order="-reward"))[:5] == ["r4", "r0", "r5", "r3", "r7"]
    for order in ("reward", "-reward"):
        assert ids(store.rollouts(order=order))[5:] == ["r1", "r2", "r6"]


def test_several_keys_order(store: Store) -> None:
    assert ids(store.rollouts(order="-step,task")) == ids(store.rollouts(order=["-step", "task"]))
    assert ids(store.rollouts(order="-step,task")) == [
        "r6",
        "r7",
        "r4",
        "r3",
        "r5",
        "r0",
        "r2",
        "r1",
    ]


def test_newest_come_first(store: Store) -> None:
    assert ids(store.rollouts(limit=3)) == ["r7", "r6", "r5"]


@pytest.mark.parametrize(
    "order", ["reward", "-reward", "-time", "-step,reward", "task,-reward", ""]
)
@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_give_everything_once_in_order(store: Store, order: str, size: int) -> None:
    found: list[str] = []
    cursor = None
    while True:
        page = store.rollouts(order=order).page(size, cursor)
        assert len(page.rows) <= size
        found += ids(page.rows)
        cursor = page.next
        if cursor is None:
            break
    assert found == ids(store.rollouts(order=order))
    assert len(found) == len(REWARDS)


def test_rollouts_without_a_time_are_paged_too() -> None:
    store = Store(reader=Tables([*rows(), *rows(time=None), *rows(time=math.nan)]))
    for row, number in zip(store.rollouts(), range(100), strict=False):
        assert (row.time is not None and row.time == row.time) == (number < len(REWARDS))


def test_a_page_is_stable_while_rollouts_arrive() -> None:
    tables = Tables(rows())
    store = Store(reader=tables)
    first = store.rollouts(order="-time").page(3)
    tables.add("rollouts", [{"id": "new", "time": 999.0, "superseded": False}])
    second = store.rollouts(order="-time").page(3, first.next)
    assert ids(first.rows) + ids(second.rows) == ["r7", "r6", "r5", "r4", "r3", "r2"]


def test_a_page_is_of_one_state_of_the_store_though_it_grows_while_it_is_made() -> None:
    class Growing(Tables):
        """A newer step arrives between counting the steps and reading the page."""

        def cursor(self) -> Any:
            if self.asked == 1:
                self.add("rollouts", [{"id": "new", "step": 9, "superseded": False}])
            self.asked += 1
            return super().cursor()

        asked = -100

    tables = Growing(rows())
    selection = Store(reader=tables).rollouts(order="-step")
    tables.asked = 0
    assert ids(selection.page(3).rows) == ["new", "r6", "r7"]
    assert selection.count() == len(REWARDS) + 1


def test_more_steps_than_are_counted_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollscope.query.selection._VALUES", 2)
    selection = Store(reader=Tables(rows())).rollouts(order="-step")
    assert selection.count() == len(REWARDS)
    assert ids(selection.page(3).rows) == ["r6", "r7", "r3"]
    assert ids(selection[3:5]) == ["r4", "r5"]


def test_a_cursor_of_another_order_or_none_at_all_is_refused(store: Store) -> None:
    cursor = store.rollouts(order="reward").page(1).next
    with pytest.raises(ValueError, match="was made for order 'reward', not 'step'"):
        store.rollouts(order="step").page(1, cursor)
    forged = [json.dumps(["reward", *last]) for last in ([{}, "a"], ["x", "a"], [True, "a"], [1])]
    for wrong in (
        "",
        "xyz",
        "W10",
        *(base64.urlsafe_b64encode(f.encode()).decode() for f in forged),
    ):
        with pytest.raises(ValueError, match="not a cursor"):
            store.rollouts(order="reward").page(1, wrong)


def test_orders_that_make_no_sense_are_named(store: Store) -> None:
    with pytest.raises(ValueError, match=r'unknown key "rewrd".*did you mean reward'):
        store.rollouts(order="step,-rewrd")
    with pytest.raises(ValueError, match="cannot be sorted by tool"):
        store.rollouts(order="tool")


def test_slices(store: Store) -> None:
    everything = ids(store.rollouts())
    assert ids(store.rollouts()[2:4]) == everything[2:4]
    assert ids(store.rollouts(limit=3)[1:]) == everything[1:3]
    assert ids(store.rollouts()[1:][1:3]) == everything[2:4]
    assert store.rollouts()[5].id == everything[5]
    with pytest.raises(IndexError):
        store.rollouts()[99]


@pytest.mark.parametrize("few", [0, 3, 2000])
@pytest.mark.parametrize("one_scan", [True, False])
@pytest.mark.parametrize(
    "order", ["step", "-step", "-step,task", "step,-reward", "-reward", "time"]
)
def test_a_window_anywhere_has_the_rows_that_stand_there(
    order: str, one_scan: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollscope.query.selection._FEW", few)
    made = [row | {"step": None if i > 5 else row["step"]} for i, row in enumerate(rows())]
    tables = Tables(made)
    tables.one_scan = one_scan
    selection = Store(reader=tables).rollouts(order=order)
    everything = ids(selection)
    for at in range(len(made) + 1):
        for size in (1, 2, 5, 20):
            assert ids(selection[at : at + size]) == everything[at : at + size]


def test_counts_say_what_was_left_out() -> None:
    store = Store(reader=Tables([*rows(), {"id": "old", "reward": 0.5, "superseded": True}]))
    assert store.rollouts("reward:0.5", limit=1).count() == 2
    assert store.rollouts("reward:0.5").counts() == (2, 1, 8)
    assert store.rollouts("reward:0.5 superseded:true,false").counts() == (3, 0, 8)


def test_rows_have_attributes_and_never_invent_values(store: Store) -> None:
    row = store.rollouts("id:r0")[0]
    assert (row.id, row.reward, row["step"], row.advantage) == ("r0", 0.5, 0, None)
    assert "advantage" in dir(row)
    thin = store.rollouts("id:r0", columns=["id", "reward"])[0]
    assert thin.asdict() == {"id": "r0", "reward": 0.5}
    with pytest.raises(AttributeError, match="has no 'step'"):
        _ = thin.step
    with pytest.raises(ValueError, match="no such column: nope"):
        store.rollouts(columns=["nope"])


def test_selections_go_to_other_libraries(store: Store) -> None:
    chosen = store.rollouts("reward:<1", order="reward", columns=["id", "reward"])
    assert chosen.to_arrow().column("id").to_pylist() == ["r7", "r3", "r0", "r5"]
    assert chosen.to_polars()["id"].to_list() == ["r7", "r3", "r0", "r5"]
    assert chosen.to_pandas()["id"].tolist() == ["r7", "r3", "r0", "r5"]
    assert store.rollouts(limit=1).to_polars().height == 1


def test_a_missing_library_is_asked_for_by_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        ImportError, match=r"to_polars\(\) needs polars: pip install polars pyarrow"
    ):
        store.rollouts().to_polars()


def test_a_row_its_group_and_its_neighbours_are_named_by_the_beginning_of_an_id() -> None:
    same = {"run": "x", "step": 1}
    made = [{"id": "abc1", "group": "g", **same}, {"id": "abc2", "group": "h", **same}]
    store = Store(reader=Tables([*made, {"id": "b3"}]))
    assert store.row("b").id == "b3"
    assert ids(store.group("abc1")) == ["abc1"]
    assert store.neighbours("abc1") == Neighbours(None, "abc2")
    for ask in (store.row, store.group, store.neighbours):
        with pytest.raises(NotFound, match="the beginning of several ids: abc1, abc2"):
            ask("abc")
        with pytest.raises(NotFound, match="no rollout 'c'"):
            ask("c")


def test_get_takes_an_id_or_the_beginning_of_one() -> None:
    store = Store(reader=Tables([{"id": "abc1"}, {"id": "abd2"}, {"id": "ab"}]))
    assert store.get("abc1").id == "abc1"
    assert store.get("abc").id == "abc1"
    assert store.get("ab").id == "ab"
    with pytest.raises(KeyError, match="no rollout 'zz'"):
        store.get("zz")
    store = Store(reader=Tables([{"id": "abc1"}, {"id": "abd2"}]))
    with pytest.raises(KeyError, match="beginning of several ids: abc1, abd2"):
        store.get("ab")
