"""Files go away while they are read, and everything is still seen exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_logs import LogFile

from rollscope.model import Message, Rollout
from rollscope.query import Store
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

COUNT, SEGMENTS = 5000, 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four segments; the rollouts of each are one row group or more of their own."""
    for seq in range(SEGMENTS):
        log = LogFile(tmp_path, seq=seq)
        numbers = range(seq, COUNT, SEGMENTS)
        log.log(*(rollout(number) for number in numbers))
        seal(log.directory, log.name)
    opened = Store(tmp_path)
    yield opened
    opened.close()


def rollout(number: int) -> Rollout:
    messages = [Message(role="user", content=f"needle {number}")]
    return Rollout(id=f"r{number:05}", step=number, time=1.0 + number, messages=messages)


IDS = [f"r{number:05}" for number in range(COUNT)]


def move_on(store: Store) -> None:
    """Compact, and remove at once what was compacted."""
    assert compact(store.reader.root / "p" / "r", grace=0).merged


def test_an_iteration_goes_on_when_its_files_are_gone(store: Store) -> None:
    rows = iter(store.rollouts("", order="step"))
    found = [next(rows).id]
    move_on(store)
    assert found + [row.id for row in rows] == IDS


def test_a_search_tells_each_rollout_once_when_files_go_away(store: Store) -> None:
    told: list[str] = []
    moved = False
    for found in store.search("needle"):
        told += [row.id for row in found.rows]
        if not moved:
            move_on(store)
            moved = True
    assert sorted(told) == IDS


def test_a_search_goes_on_when_files_go_away_after_the_first_finds(store: Store) -> None:
    told: list[str] = []
    moved = False
    search = store.search("needle")
    for found in search:
        told += [row.id for row in found.rows]
        if told and not moved:
            move_on(store)
            moved = True
    assert moved and sorted(told) == IDS


def test_sql_is_answered_when_files_go_away_before_it_is_read(store: Store) -> None:
    result = store.sql("SELECT id FROM rollouts ORDER BY id")
    move_on(store)
    assert [id for (id,) in result.fetchall()] == IDS
    assert len(store.sql("SELECT 1 FROM messages").fetchall()) == COUNT
