"""Every task is of one kind, and the engine says the same one."""

from __future__ import annotations

import itertools
import math

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model.solved import FLIPS, KIND, KINDS, RATE, SOLVED, kind_of

DB = duckdb.connect()

rate = st.none() | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(rate, rate, rate, rate)
def test_a_kind_is_the_same_to_the_engine(
    first: float | None, last: float | None, best: float | None, worst: float | None
) -> None:
    names = ("first_rate", "last_rate", "best_rate", "worst_rate")
    given = ", ".join(f"?::DOUBLE AS {name}" for name in names)
    found = DB.execute(f"SELECT {KIND} FROM (SELECT {given})", [first, last, best, worst])
    assert found.fetchall() == [(kind_of(first, last, best, worst),)]
    assert kind_of(first, last, best, worst) in KINDS


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ([], "not scored"),
        ([0.0, 0.0], "never"),
        ([1.0, 1.0], "always"),
        ([0.0, 1.0], "flipped"),
        ([0.0, 1.0, 0.0, 1.0], "flipped"),
        ([1.0, 0.0], "regressed"),
        ([0.0, 1.0, 1.0, 0.0], "regressed"),
        ([0.75, 1.0], "mixed"),
        ([0.0, 0.25], "mixed"),
        ([1.0, 0.0, 1.0], "mixed"),
    ],
)
def test_a_history_is_of_one_kind(rates: list[float], kind: str) -> None:
    ends = (rates[0], rates[-1], max(rates), min(rates)) if rates else (None,) * 4
    assert kind_of(*ends) == kind


def test_without_steps_nothing_was_lost_or_learned() -> None:
    assert kind_of(None, None, 1.0, 0.0) == "mixed"


@given(st.lists(st.none() | st.sampled_from([-math.inf, 0.0, 0.49, 0.5, 1.0, math.inf, math.nan])))
def test_a_rate_is_the_share_of_solved_rollouts_that_have_a_reward(
    rewards: list[float | None],
) -> None:
    sql = f"SELECT {RATE} FROM (SELECT unnest(?::DOUBLE[]) AS reward) r"
    found = DB.execute(sql, [SOLVED, rewards]).fetchall()[0][0]
    known = [reward for reward in rewards if reward is not None and not math.isnan(reward)]
    solved = [reward for reward in known if reward >= SOLVED]
    assert found == (pytest.approx(len(solved) / len(known)) if known else None)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0])))
def test_flips_are_counted_from_each_step_to_the_next(rates: list[float]) -> None:
    befores = [None, *rates][: len(rates)]
    sql = f"SELECT {FLIPS} FROM (SELECT unnest(?::DOUBLE[]) AS rate, unnest(?::DOUBLE[]) AS before)"
    mostly = [rate >= 0.5 for rate in rates]
    changes = sum(a != b for a, b in itertools.pairwise(mostly))
    assert DB.execute(sql, [rates, befores]).fetchall() == [(changes,)]
