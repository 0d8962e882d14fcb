"""Tasks against runs, steps and models: every number is of the rollouts that its terms find."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rollscope.query import Store
from rollscope.query.matrix import COLUMNS, Matrix
from rollscope.query.overview import exactly, joined
from server import many

from .tables import Tables


def made(rewards: dict[tuple[str | None, int | None, str], list[float | None]]) -> Store:
    """By run, step and task."""
    rows = [
        {"id": f"{run}-{step}-{task}-{n}", "project": "p", "run": run, "step": step,
         "task": task, "reward": reward, "meta": {"model": run, "size": n}}
        for (run, step, task), mine in rewards.items()
        for n, reward in enumerate(mine)
    ]  # fmt: skip
    return Store(reader=Tables(rows))


def holds(store: Store, query: str, found: Matrix) -> None:
    """Does every number agree with the rollouts that its terms find?"""
    for column in found.columns:
        rows = list(store.rollouts(joined(query, column.q, "has:task")))
        assert len(rows) == column.count, column
    for task in found.tasks:
        terms = f"{exactly('task', task.task)} dataset:{task.dataset or 'none'}"
        assert len(list(store.rollouts(joined(query, terms)))) == task.count
        for cell in task.cells:
            q = joined(query, terms, found.columns[cell.column].q)
            rewards = [row.reward for row in store.rollouts(q)]
            assert len(rewards) == cell.count
            scored = [r for r in rewards if r is not None and not math.isnan(r)]
            assert len(scored) == cell.scored
            if not scored:
                assert cell.rate is None
                continue
            assert cell.rate == pytest.approx(sum(r >= 0.5 for r in scored) / len(scored))
            finite = [r for r in scored if math.isfinite(r)]
            assert cell.reward == (pytest.approx(sum(finite) / len(finite)) if finite else None)


SCORES = {
    ("a", None, "easy"): [1.0, 1.0],
    ("a", None, "hard"): [0.0, 0.25],
    ("b", None, "easy"): [1.0, math.nan],
    ("b", None, "hard"): [1.0, None],
    ("c", None, "odd"): [None, math.inf],
}


def test_runs_without_steps_stand_side_by_side() -> None:
    store = made(SCORES)  # type: ignore[arg-type]
    found = store.matrix()
    assert found.across == "run"
    assert [(c.name, c.project, c.q, c.count) for c in found.columns] == [
        ("a", "p", "run:a", 4), ("b", "p", "run:b", 4), ("c", "p", "run:c", 2)
    ]  # fmt: skip
    assert [(task.task, task.spread) for task in found.tasks] == [
        ("hard", 1.0), ("easy", 0.0), ("odd", None)
    ]  # fmt: skip
    assert [cell.column for cell in found.tasks[2].cells] == [2]  # where it has none, none is told
    holds(store, "", found)


def test_tasks_are_sorted_by_the_difference_of_two_columns() -> None:
    store = made(SCORES)  # type: ignore[arg-type]
    found = store.matrix(order="-difference", base="run:a", other="run:b")
    assert [(task.task, task.difference) for task in found.tasks] == [
        ("hard", 1.0), ("easy", 0.0), ("odd", None)
    ]  # fmt: skip
    found = store.matrix(order="difference", base="run:b", other="run:a")
    assert [task.task for task in found.tasks] == ["hard", "easy", "odd"]
    assert store.matrix(base="run:a", other="run:gone").tasks[0].difference is None


@pytest.mark.parametrize("across", ["run", "step", "meta.model", "meta.size", "split", "reward"])
def test_every_number_is_of_the_rollouts_that_its_terms_find(across: str) -> None:
    scores = {("a.b c", -3, "t"): [0.0, 1.0], ('x"y', 10, "t"): [0.5], (None, None, "u"): [1.0]}
    store = made({**SCORES, **scores})  # type: ignore[dict-item]
    found = store.matrix(across=across)
    assert sum(column.count for column in found.columns) == store.rollouts("").count()
    assert (
        sum(cell.count for task in found.tasks for cell in task.cells) == store.rollouts("").count()
    )
    holds(store, "", found)


def test_many_steps_become_ranges() -> None:
    rewards = {("a", step, "t"): [step / 200] for step in range(3, 200)}
    store = made(rewards)  # type: ignore[arg-type]
    found = store.matrix()
    assert found.across == "step"
    assert [c.name for c in found.columns][:2] == ["0..9", "10..19"]
    assert found.columns[-1].q == "step:190..199" and len(found.columns) == 20
    holds(store, "", found)
    assert [c.name for c in store.matrix("step:3..9").columns] == [str(n) for n in range(3, 10)]


def test_columns_are_in_the_order_of_their_numbers_and_too_many_are_counted() -> None:
    rewards = {(f"ckpt-{n}", None, "t"): [1.0] for n in range(COLUMNS + 6)}
    rewards[("ckpt-70", None, "t")] = [0.0] * 3
    found = made(rewards).matrix()  # type: ignore[arg-type]
    assert (len(found.columns), found.left_out) == (COLUMNS, 7)
    assert [c.name for c in found.columns][:3] == ["ckpt-0", "ckpt-1", "ckpt-2"]
    assert found.columns[-1].name == "ckpt-70"  # it has the most rollouts


def test_runs_of_the_same_name_in_two_projects_are_two_columns() -> None:
    rows = [
        {"id": project, "project": project, "run": "one", "task": "t", "reward": reward}
        for project, reward in (("p", 0.0), ("q", 1.0))
    ]
    store = Store(reader=Tables(rows))
    found = store.matrix(across="run", base="run:one project:p", other="run:one project:q")
    assert [c.q for c in found.columns] == ["run:one project:p", "run:one project:q"]
    assert found.tasks[0].difference == 1.0
    holds(store, "", found)


def test_a_matrix_of_nothing_and_wrong_words() -> None:
    store = made({})
    assert store.matrix() == Matrix("split", [], 0, [], 0)
    with pytest.raises(ValueError, match=r"'best'.*task, rollouts"):
        store.matrix(order="-best")
    for key in ("text", "tool", "error_text"):
        with pytest.raises(ValueError, match="cannot be columns"):
            store.matrix(across=key)


def test_twenty_models_by_five_hundred_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SEAL", "off")
    many.models(tmp_path)
    store = Store(tmp_path)
    pair = {"base": "run:model-00", "other": "run:model-19"}
    pair = {name: exactly("run", q.partition(":")[2]) for name, q in pair.items()}
    found = store.matrix(order="-difference", limit=100, **pair)  # type: ignore[arg-type]
    assert (len(found.columns), len(found.tasks), found.count) == (20, 100, 500)
    assert all(len(task.cells) == 20 and task.difference == 1 for task in found.tasks[:50])
    rest = store.matrix(order="-difference", limit=500, at=100, **pair)  # type: ignore[arg-type]
    names = [task.task for window in (found, rest) for task in window.tasks]
    assert len(set(names)) == 500
    store.close()
