"""A count on verl's legacy trainer: workers that never talk keep the same groups, whole."""

from collections import Counter

import pytest

from rollscope import Sample
from rollscope.adapters.verl.choice import Choice

LAYOUTS = [(8, 4, 8), (3, 4, 4), (4, 8, 8), (2, 8, 8), (5, 3, 5), (6, 2, 1), (1, 6, 3), (16, 5, 10)]


def chosen_rows(rows: list[int], n: int, sample: Sample, step: int) -> list[bool] | None:
    return Choice().rows(rows, n, sample, step, "train")


def shares(prompts: int, n: int, workers: int) -> list[list[int]]:
    size = prompts * n // workers
    return [list(range(w * size, (w + 1) * size)) for w in range(workers)]


@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize(("prompts", "n", "workers"), LAYOUTS)
def test_groups_are_whole_over_all_workers_and_the_count_holds(prompts, n, workers, count) -> None:
    sample = Sample(groups_per_step=count)
    kept: Counter[int] = Counter()
    begun: Counter[int] = Counter()
    for worker, rows in enumerate(shares(prompts, n, workers)):
        chosen = chosen_rows(rows, n, sample, step=3)
        for row, is_kept in zip(rows, chosen, strict=True):
            kept[row // n] += is_kept
            begun[worker] += is_kept and row % n == 0
    assert set(kept.values()) <= {0, n}
    assert all(begun[worker] <= count for worker in range(workers))
    if count == 100:
        assert set(kept.values()) == {n}
    if count and prompts >= workers:
        assert all(begun[worker] >= 1 for worker in range(workers))


def test_another_step_and_another_seed_keep_others() -> None:
    rows = list(range(256))
    choices = {
        tuple(chosen_rows(rows, 4, Sample(groups_per_step=3, seed=seed), step))
        for step in range(4)
        for seed in range(4)
    }
    assert len(choices) > 8
    one = Sample(groups_per_step=3)
    assert chosen_rows(rows, 4, one, 1) == chosen_rows(rows, 4, one, 1)


def test_a_count_of_rollouts_is_filled_up_to_whole_groups() -> None:
    for count, groups in ((1, 1), (4, 1), (5, 2), (0, 0)):
        chosen = chosen_rows(list(range(40)), 4, Sample(rollouts_per_step=count), 1)
        assert sum(chosen) == groups * 4


@pytest.mark.parametrize("rows", [[0, 2, 1], [3, 4, 5, 6], [0, 1, 3]])
def test_a_share_that_verl_would_not_cut_is_not_judged(rows: list[int]) -> None:
    assert chosen_rows(rows, 2, Sample(groups_per_step=1), 1) is None
    assert chosen_rows([0, 1], 2, Sample(fraction=0.5), 1) is None


@pytest.mark.parametrize(("prompts", "n", "workers"), LAYOUTS)
def test_the_count_is_a_steps_and_not_a_calls(prompts: int, n: int, workers: int) -> None:
    """Validation comes in several batches: what is kept of the first is not kept again."""
    count = 2
    begun: Counter[int] = Counter()
    kept: Counter[tuple[int, int]] = Counter()
    for worker, rows in enumerate(shares(prompts, n, workers)):
        choice = Choice()
        for call in range(4):
            chosen = choice.rows(rows, n, Sample(groups_per_step=count), 3, "eval")
            for row, is_kept in zip(rows, chosen, strict=True):
                kept[call, row // n] += is_kept
                begun[worker] += is_kept and row % n == 0
    assert set(kept.values()) <= {0, n}
    assert all(begun[worker] <= count for worker in range(workers))
    other = Choice()
    rows = shares(prompts, n, workers)[0]
    first = other.rows(rows, n, Sample(groups_per_step=count), 3, "eval")
    assert other.rows(rows, n, Sample(groups_per_step=count), 3, "train") == first
