"""Counts, histograms, ribbons, funnels and failures: numbers that add up, and link."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from rollscope.model.solved import KINDS
from rollscope.query import Store

from .tables import Tables

ROWS: list[dict[str, Any]] = [
    {"split": "train", "step": 1, "group": "g1", "task": "t1", "index": 0, "reward": 0.0,
     "fate": "dropped", "fate_reason": "zero/variance (all 0)", "tools": ["python", "search"]},
    {"split": "train", "step": 1, "group": "g1", "task": "t1", "index": 1, "reward": 0.0,
     "fate": "dropped", "fate_reason": "zero/variance (all 0)", "tools": []},
    {"split": "train", "step": 1, "group": "g2", "task": "t2", "index": 0, "reward": 1.0,
     "fate": "trained", "response_tokens": 10},
    {"split": "train", "step": 1, "group": "g2", "task": "t2", "index": 1, "reward": math.nan,
     "fate": "trained", "truncated": True, "response_tokens": 30},
    {"split": "train", "step": 2, "group": "g3", "task": "t1", "index": 0, "reward": 1.0,
     "fate": "trained", "response_tokens": 20, "flags": ["loop"]},
    {"split": "train", "step": 2, "group": "g3", "task": "t1", "index": 1, "reward": 0.5,
     "fate": "scored"},
    {"split": "train", "step": 2, "group": "g4", "task": "t2", "index": 0, "fate": "failed",
     "error_kind": "tool", "error_type": "Timeout", "error_text": "after 30 s"},
    {"split": "eval", "step": 2, "task": "t1", "reward": -math.inf, "error_text": "?"},
    {"split": "train", "step": 2, "group": "g3", "task": "t1", "index": 0, "reward": 9.0,
     "superseded": True, "launch": "old"},
]  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Store:
    rows = [{"id": f"r{i}", "run": "one", "time": float(i), **row} for i, row in enumerate(ROWS)]
    tables = Tables(rows)
    for step, value, time in [(1, 0.5, 1.0), (2, 0.4, 2.0), (2, 0.3, 3.0)]:
        row = {
            "run": "one",
            "project": "p",
            "step": step,
            "time": time,
            "name": "loss",
            "value": value,
        }
        tables.add("metrics", [row])
    return Store(reader=tables)


def test_facets_count_values_and_say_what_is_missing(store: Store) -> None:
    split, fate, tool, truncated = store.facets("", ["split", "fate", "tool", "truncated"], 2)
    assert [(v.value, v.count) for v in split.values] == [("train", 7), ("eval", 1)]
    assert [(v.value, v.count) for v in fate.values] == [("trained", 3), ("dropped", 2)]
    assert (fate.more, fate.missing) == (2, 1)
    assert [(v.value, v.count) for v in tool.values] == [("python", 1), ("search", 1)]
    assert tool.missing == 7
    assert [(v.value, v.count) for v in truncated.values] == [(True, 1)]


def test_facets_follow_the_query(store: Store) -> None:
    (fate,) = store.facets("reward:>=0.5", ["fate"])
    assert [(v.value, v.count) for v in fate.values] == [("trained", 2), ("scored", 1)]


def test_histograms_keep_nan_infinite_and_missing_apart(store: Store) -> None:
    reward, step = store.histograms("", ["reward", "step"], bars=2)
    assert (reward.low, reward.high, reward.counts) == (0.0, 1.0, [2, 3])
    assert (reward.missing, reward.nan, reward.infinite, reward.outside) == (1, 1, 1, 0)
    assert (step.counts, step.high, step.most, step.mean) == ([4, 4], 3.0, 2.0, 1.5)
    inner = store.histogram("", "reward", bars=4, low=0.0, high=0.5)
    assert (inner.counts, inner.outside) == ([2, 0, 0, 1], 2)


@pytest.mark.parametrize("last", [26, 51, 99, 1000])
def test_whole_numbers_stand_in_the_bar_that_begins_with_them(last: int) -> None:
    rows = [{"id": str(n), "run": "one", "step": n} for n in range(last + 1)]
    found = Store(reader=Tables(rows)).histogram("", "step", last + 1, 0.0, last + 1.0)
    assert found.counts == [1] * (last + 1)


def test_bars_of_whole_numbers_hold_as_many_numbers_each() -> None:
    rows = [{"id": str(n), "run": "one", "step": n} for n in range(10)]
    (found,) = Store(reader=Tables(rows)).histograms("", ["step"], bars=4)
    assert (found.low, found.high, found.most, found.counts) == (0.0, 12.0, 9.0, [3, 3, 3, 1])


def test_a_histogram_of_nothing_is_empty(store: Store) -> None:
    (nothing,) = store.histograms("step:99", ["reward"])
    assert (nothing.low, nothing.high, nothing.counts) == (None, None, [])


def test_histogram_by_step(store: Store) -> None:
    moved = store.histogram_by_step("", "reward", bars=2)
    assert (moved.steps, moved.counts) == ([1, 2], [[2, 1], [0, 2]])


def test_values_complete_what_was_begun(store: Store) -> None:
    assert [(v.value, v.count) for v in store.values("fate", "TR")] == [("trained", 3)]
    assert [v.value for v in store.values("tool")] == ["python", "search"]


def test_ribbon_leaves_nan_out_and_counts_dead_groups(store: Store) -> None:
    eval2, train1, train2 = store.ribbon()
    assert (train1.step, train1.count, train1.rewarded, train1.not_finite) == (1, 4, 3, 1)
    assert train1.reward == pytest.approx(1 / 3)
    assert train1.quantiles is not None
    assert train1.quantiles[2] == 0.0
    assert (train1.groups, train1.dead_groups, train1.truncated) == (2, 1, 1)
    assert train1.response_tokens == 20
    assert (train2.groups, train2.dead_groups, train2.errors) == (2, 0, 1)
    assert (eval2.reward, eval2.not_finite, eval2.errors) == (None, 1, 1)


@pytest.mark.parametrize("query", ["", "split:train", "step:1 OR step:2", "reward:>0"])
def test_funnel_adds_up_and_every_count_is_a_query(store: Store, query: str) -> None:
    stages = store.funnel(query)
    assert [stage.name for stage in stages] == ["generated", "scored", "kept", "trained"]
    assert stages[0].count == store.rollouts(query).count()
    for before, stage in itertools.pairwise(stages):
        assert stage.count + sum(loss.count for loss in stage.reasons) == before.count
    for stage in stages:
        assert store.rollouts(stage.query).count() == stage.count
        for loss in stage.reasons:
            assert store.rollouts(loss.query).count() == loss.count


def test_where_rollouts_ended_adds_up_and_every_count_is_a_query(store: Store) -> None:
    for query in ("", "split:train", "step:1 OR step:2"):
        ends = store.fates(query)
        assert sum(end.count for end in ends) == store.rollouts(query).count()
        for tally in (*ends, *(reason for end in ends for reason in end.reasons)):
            assert store.rollouts(tally.query).count() == tally.count


def test_failures_have_examples_and_every_count_is_a_query(store: Store) -> None:
    failures = store.failures()
    assert {(f.kind, f.type, f.count) for f in failures} == {
        ("tool", "Timeout", 1), (None, None, 1), ("limit", None, 1)
    }  # fmt: skip
    for failure in failures:
        assert sorted(store.rollouts(failure.query).ids()) == sorted(failure.examples)
    for kind in store.failure_kinds(failures):
        assert store.rollouts(kind.query).count() == kind.count


def test_metrics_of_a_repeated_step_are_the_later_ones(store: Store) -> None:
    assert store.metrics("one") == {"loss": [(1, 0.5), (2, 0.3)]}
    assert store.metrics("one", project="other") == {}


def test_group_is_siblings_by_index(store: Store) -> None:
    assert [row.id for row in store.group("r1")] == ["r0", "r1"]
    assert [row.id for row in store.group("r5")] == ["r4", "r5"]
    assert [row.id for row in store.group("r7")] == ["r7"]
    assert [row.id for row in store.group("r8")] == ["r8"]


def test_the_same_group_of_another_start_of_the_script_is_another_group() -> None:
    rows = [
        {"id": launch + str(n), "run": "one", "step": 1, "group": "g", "launch": launch,
         "index": n, "reward": float(n)}
        for launch in "ab" for n in range(2)
    ]  # fmt: skip
    store = Store(reader=Tables(rows))
    assert [row.id for row in store.group("a1")] == ["a0", "a1"]
    assert store.neighbours("a0").after == "b0" and store.neighbours("b1").before == "a0"
    assert store.ribbon()[0].groups == 2


def test_neighbours_walk_all_groups_of_run_and_split(store: Store) -> None:
    walked, at = ["r0"], "r0"
    while (after := store.neighbours(at).after) is not None:
        assert store.neighbours(after).before in [row.id for row in store.group(at)]
        walked.append(at := after)
    assert walked == ["r0", "r2", "r4", "r6"]


def test_neighbours_walk_the_same_task_of_every_dataset() -> None:
    names = [("7", "code", None), ("7", "math", "easy"), ("7", "math", None), ("7", None, None)]
    rows = [
        {"id": f"{n}", "run": "one", "step": 1, "task": task, "dataset": dataset,
         "environment": environment}
        for n, (task, dataset, environment) in enumerate(names)
    ]  # fmt: skip
    rows += [{"id": "uid", "run": "one", "step": 1, "group": "7"}, {"id": "alone", "step": 1}]
    store = Store(reader=Tables(rows))
    assert all(len(store.group(str(row["id"]))) == 1 for row in rows)
    first = next(row["id"] for row in rows if store.neighbours(str(row["id"])).before is None)
    walked = [str(first)]
    while (after := store.neighbours(walked[-1]).after) is not None:
        assert store.neighbours(after).before == walked[-1]
        walked.append(after)
    assert sorted(walked) == ["0", "1", "2", "3", "uid"]


def test_neighbours_lead_to_the_task_at_the_nearest_other_steps() -> None:
    rows = [
        {"id": f"{step}-{index}", "run": "one", "task": "t", "dataset": dataset, "step": step,
         "index": index}
        for step, index, dataset in ((1, 0, None), (1, 1, None), (2, 1, None), (2, 0, "d"),
                                     (5, 0, None), (5, 1, None), (9, 1, None))
    ]  # fmt: skip
    near = Store(reader=Tables(rows)).neighbours("2-1")
    assert (near.earlier, near.later) == ("1-1", "5-1")
    near = Store(reader=Tables(rows)).neighbours("5-0")
    assert (near.earlier, near.later) == ("2-1", "9-1")
    assert Store(reader=Tables(rows)).neighbours("2-0").later is None


def test_reading_begins_at_the_newest_group_with_mixed_rewards(store: Store) -> None:
    assert store.mixed() == "r4"
    assert store.mixed("step:1") is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_siblings_as_good_as_each_other_reading_begins_at_the_first(order: list[int]) -> None:
    siblings = [
        {"id": f"r{9 - index}", "run": "one", "step": 1, "group": "g", "index": index,
         "reward": float(index != 1)}
        for index in order
    ]  # fmt: skip
    assert Store(reader=Tables(siblings)).mixed() == "r9"


def history_store(rates: dict[str, list[float]]) -> Store:
    rows = [
        {"id": f"{task}-{step}", "run": "one", "task": task, "step": step, "reward": reward}
        for task, rewards in rates.items()
        for step, reward in enumerate(rewards)
    ]
    return Store(reader=Tables(rows))


def test_every_task_is_of_one_kind() -> None:
    store = history_store(
        {
            "learned": [0, 0, 1, 1],
            "lost": [0, 1, 1, 0],
            "wavering": [1, 0, 1],
            "never": [0, 0, 0],
            "always": [1, 1],
            "unknown": [math.nan],
        }
    )
    assert {kind: [t.task for t in store.tasks(kind=kind)] for kind in KINDS} == {
        "flipped": ["learned"],
        "regressed": ["lost"],
        "mixed": ["wavering"],
        "never": ["never"],
        "always": ["always"],
        "not scored": ["unknown"],
    }
    tasks = {t.task: t for t in store.tasks()}
    assert {name: tasks[name].flips for name in ("learned", "lost", "wavering")} == {
        "learned": 1, "lost": 2, "wavering": 2,
    }  # fmt: skip
    learned = tasks["learned"]
    assert (learned.first_rate, learned.last_rate, learned.first_success) == (0.0, 1.0, 2)
    assert (learned.regression, learned.count, learned.steps) == (0.0, 4, 4)
    assert tasks["unknown"].last_rate is None


def test_a_kind_of_task_that_is_none_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'lost'.*flipped, regressed"):
        history_store({}).tasks(kind="lost")  # type: ignore[arg-type]


def test_a_rollout_whose_length_is_not_known_does_not_count_in_the_mean() -> None:
    rows = [
        {"id": str(n), "run": "one", "task": "t", "step": step, "response_tokens": length}
        for n, (step, length) in enumerate([(1, 10), (1, None), (1, None), (2, 40)])
    ]
    (task,) = Store(reader=Tables(rows)).tasks()
    assert task.response_tokens == 25


def test_a_task_without_steps_has_no_first_and_no_last() -> None:
    rows = [{"id": str(n), "run": "one", "task": "t", "reward": n} for n in (0.0, 1.0)]
    (task,) = Store(reader=Tables(rows)).tasks()
    assert (task.first_rate, task.last_rate, task.best_rate, task.steps) == (None, None, 0.5, 0)


def test_rates_are_means_over_the_runs_each_by_its_own_steps() -> None:
    rows = [
        {"id": f"{run}-{step}", "run": run, "task": "t", "step": step, "reward": reward}
        for run, rewards in {"one": [0.0, 1.0], "two": [1.0, 1.0, 0.0]}.items()
        for step, reward in enumerate(rewards)
    ]
    rows.append({"id": "none", "run": "three", "task": "t", "reward": 0.0})
    (task,) = Store(reader=Tables(rows[:-1])).tasks()
    assert (task.first_rate, task.last_rate, task.best_rate) == (0.5, 0.5, 1.0)
    (task,) = Store(reader=Tables(rows)).tasks()  # a run without steps counts with its one rate
    assert (task.first_rate, task.last_rate, task.best_rate) == pytest.approx((1 / 3, 1 / 3, 2 / 3))
    assert (task.runs, task.steps, task.rate) == (3, 3, 0.5)


@pytest.mark.parametrize("rewards", [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
def test_runs_that_differ_from_each_other_are_no_regression(rewards: list[float]) -> None:
    rows = [
        {"id": f"{run}-{step}", "run": f"{run}", "task": "t", "step": step, "reward": reward}
        for run, reward in enumerate(rewards)
        for step in range(5)
    ]
    (task,) = Store(reader=Tables(rows)).tasks()
    assert (task.kind, task.regression, task.flips) == ("mixed", 0, 0)
    assert task.first_rate == task.best_rate == task.last_rate == pytest.approx(1 / 3)


def test_rollouts_that_are_compared_with_nothing_are_no_dead_group() -> None:
    rows = [{"id": str(n), "run": "one", "step": 1, "reward": 1.0} for n in range(3)]
    (step,) = Store(reader=Tables(rows)).ribbon()
    assert (step.groups, step.dead_groups) == (3, 0)


def test_a_sibling_that_failed_does_not_make_a_dead_group_live() -> None:
    rows = [
        {"id": str(n), "run": "one", "step": 1, "task": "t", "reward": reward}
        for n, reward in enumerate([1.0, 1.0, None])
    ]
    (step,) = Store(reader=Tables(rows)).ribbon()
    assert (step.groups, step.dead_groups) == (1, 1)


def test_the_same_number_in_two_datasets_or_environments_is_two_groups() -> None:
    rows = [
        {"id": dataset + environment, "run": "one", "step": 1, "task": "7", "dataset": dataset,
         "environment": environment, "reward": reward}
        for dataset, environment, reward in (("a", "x", 0.0), ("b", "x", 1.0), ("b", "y", 2.0))
    ]  # fmt: skip
    store = Store(reader=Tables(rows))
    for row in rows:
        assert [sibling.id for sibling in store.group(str(row["id"]))] == [row["id"]]
    assert store.mixed("") is None
    assert store.ribbon()[0].groups == 3


def test_history_of_a_task_runs_over_steps() -> None:
    store = history_store({"381": [0, 1], "other": [1]})
    assert [(c.step, c.reward) for c in store.task_history(381)] == [(0, 0.0), (1, 1.0)]
    assert [c.step for c in store.task_history("381", query="reward:1")] == [1]


def counted(*rows: dict[str, Any]) -> Store:
    known = [{"id": f"r{i}", "run": "one", **row} for i, row in enumerate(rows)]
    return Store(reader=Tables(known))


def test_reasons_that_differ_only_in_a_number_are_one() -> None:
    reasons = ["version 3 is older than 7.5", "version 12 is older than 4", "version x", "7", "7"]
    store = counted(*({"fate": "dropped", "fate_reason": r, "reward": 1.0} for r in reasons))
    (end,) = store.fates()
    kept = next(stage for stage in store.funnel() if stage.name == "kept")
    for found in (end.reasons, kept.reasons):
        assert {r.name: r.count for r in found} == {
            "version N is older than N": 2, "7": 2, "version x": 1,
        }  # fmt: skip
        assert [store.rollouts(r.query).count() for r in found] == [r.count for r in found]


def test_a_funnel_without_any_fate_knows_no_kept_and_no_trained() -> None:
    store = counted({"reward": 1.0}, {"reward": 0.0}, {})
    assert [(stage.name, stage.count) for stage in store.funnel()] == [
        ("generated", 3), ("scored", 2),
    ]  # fmt: skip
    assert [end.name for end in store.fates()] == ["fate not known"]
    assert len(counted({"reward": 1.0}, {"fate": "trained"}).funnel()) == 4
