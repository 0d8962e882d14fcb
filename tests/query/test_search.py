"""A search tells each rollout once, as soon as it is found, and can be ended."""

from __future__ import annotations

import pytest

from rollscope.query import Store

from .tables import Tables
from .test_language import CASES, MESSAGES, ROLLOUTS


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(reader=Tables(ROLLOUTS, MESSAGES))


@pytest.mark.parametrize("query", CASES)
def test_a_search_finds_what_a_query_finds_each_once(store: Store, query: str) -> None:
    found = [row.id for told in store.search(query) for row in told.rows]
    assert sorted(found) == list(CASES[query])


def test_hits_are_told_before_everything_is_read(store: Store) -> None:
    told = list(store.search("please"))
    assert [len(t.rows) for t in told].count(1) == 2
    assert [t.done for t in told] == [False] * (len(told) - 1) + [True]
    assert [t.scanned for t in told] == sorted(t.scanned for t in told)
    assert told[-1].scanned == told[-1].total


def test_what_a_hit_could_end_is_told_at_the_end(store: Store) -> None:
    told = list(store.search("-please"))
    assert [row.id for row in told[-1].rows] == ["c"]
    assert not any(t.rows for t in told[:-1])


def test_a_search_stops_at_its_limit(store: Store) -> None:
    assert not any(found.more for found in store.search("please"))
    told = list(store.search("please", limit=1))
    assert told[-1].more and told[-1].done
    assert sum(len(t.rows) for t in told) == 1
    assert told[-1].done


def test_a_cancelled_search_ends(store: Store) -> None:
    search = store.search("please")
    told = iter(search)
    assert next(told).rows == []
    search.cancel()
    assert list(told) == []


def test_only_the_columns_that_were_asked_for(store: Store) -> None:
    rows = [row for told in store.search("please", columns=["step"]) for row in told.rows]
    assert sorted(row.asdict()["step"] for row in rows) == [100, 200]
