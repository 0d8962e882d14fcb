"""What answers share is made once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rollscope
from rollscope.server.desk import Desk


@pytest.fixture
def desk(store_dir: Path) -> Iterator[Desk]:
    store = rollscope.open(store_dir)
    desk = Desk(store, can_label=False)
    yield desk
    desk.close()
    store.close()


def test_who_asks_while_it_is_made_waits_for_it(desk: Desk) -> None:
    begun, may_end, made = threading.Event(), threading.Event(), []

    def make() -> str:
        begun.set()
        assert may_end.wait(60)
        made.append("once")
        return "it"

    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(desk.keep, ("kind", 1), make)
        assert begun.wait(60)
        others = [threads.submit(desk.keep, ("kind", 1), make) for _ in range(4)]
        assert (
            desk.keep(("kind", 2), lambda: "another") == "another"
        )  # nobody waits for others' things
        may_end.set()
        assert {one.result(60) for one in (first, *others)} == {"it"}
    assert made == ["once"]


def test_who_waited_in_vain_makes_it(desk: Desk) -> None:
    begun, may_fail = threading.Event(), threading.Event()

    def fail() -> str:
        begun.set()
        assert may_fail.wait(60)
        raise RuntimeError("interrupted: its client hung up")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(desk.keep, ("kind", 1), fail)
        assert begun.wait(60)
        other = threads.submit(desk.keep, ("kind", 1), lambda: "made")
        may_fail.set()
        assert other.result(60) == "made"
        with pytest.raises(RuntimeError, match="hung up"):
            first.result(60)
