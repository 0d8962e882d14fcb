"""Small questions never wait for large ones; large ones have their turn, and an end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollscope.query import Store
from rollscope.query.search import Found
from rollscope.server import params as p
from rollscope.server import routes, selecting, turns
from rollscope.server import shapes as s
from rollscope.server.desk import Desk

from .conftest import Served, serving

ENDLESS = "SELECT sum(hash(a.range + b.range)) FROM range(1000000) a, range(1000000) b"
MANY = 20


class Gates:
    """Facets that wait at a gate, and how many wait there at once."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = self.most = 0
        self.lock = threading.Lock()
        self.full = threading.Event()

    def facets(self, desk: Desk, _: p.FacetsOf) -> s.Facets:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside == turns.EACH:
                self.full.set()
        assert self.open.wait(120)
        with self.lock:
            self.inside -= 1
        return s.Facets(facets=[])


@contextmanager
def answered_by(
    patch: pytest.MonkeyPatch, directory: Path, facets: Callable[..., Any]
) -> Iterator[Served]:
    own = [
        routes.Route("GET", r.path, facets) if r.answerer is selecting.facets else r
        for r in routes.ROUTES
    ]
    patch.setattr(sys.modules["rollscope.server.app"], "ROUTES", own)
    with serving(directory) as site:
        yield site


def test_what_reads_texts_is_large(store_dir: Path) -> None:
    large = ["word", '"exact words"', "/a+/", "text:word", "task:/a|b/", "reward:1 assistant:x"]
    for q in large:
        assert turns.is_large("rollouts", p.SelectionOf(q=q)), q
    for q in ["", "reward:>0.5", "task:sum step:1..3", "-error:timeout"]:
        assert not turns.is_large("rollouts", p.SelectionOf(q=q)), q
    assert not turns.is_large("hits", p.HitsOf(q="word"))
    assert turns.is_large("search", p.SelectionOf(q="reward:1"))


def test_small_questions_pass_large_ones(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Gates()
    monkeypatch.setattr(sys.modules["rollscope.server.security"].Rate, "allows", lambda *_: True)
    with (
        answered_by(monkeypatch, store_dir, gates.facets) as site,
        ThreadPoolExecutor(2 * MANY) as pool,
    ):
        asked = [pool.submit(site.get, "facets", q=f"/wor(d|{n})/") for n in range(MANY)]
        try:
            assert gates.full.wait(120)
            # More than the server has threads: none of them may be held by one that waits.
            for _ in range(60):
                assert site.get("rollouts", q="reward:>0")["count"] > 0
            assert not any(one.done() for one in asked)
        finally:
            gates.open.set()
        assert all(one.result(120) == {"facets": []} for one in asked)
    assert gates.most == turns.EACH, "no client has more of them at work"


def test_a_client_that_asks_for_too_many_is_told(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = Gates()
    monkeypatch.setattr(turns, "WAITING", 3)
    with (
        answered_by(monkeypatch, store_dir, gates.facets) as site,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = [pool.submit(site.raw, "facets", q=f"/wor(d|{n})/") for n in range(4)]
        try:
            refused = next(one for one in _done(asked)).result()
        finally:
            gates.open.set()
        assert refused.status_code == 429 and "3 searches of yours" in refused.text
        assert sorted(one.result(120).status_code for one in asked) == [200, 200, 200, 429]
        assert site.raw("facets", q="/word/").status_code == 200


def _done(asked: list[Any]) -> Iterator[Any]:
    from concurrent.futures import as_completed

    return as_completed(asked, timeout=120)


def test_a_large_question_ends_when_its_time_is_over(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facets(desk: Desk, _: p.FacetsOf) -> s.Facets:
        desk.store.sql(ENDLESS).fetchall()
        return s.Facets(facets=[])

    monkeypatch.setattr(turns, "SECONDS", 0.3)
    with answered_by(monkeypatch, store_dir, facets) as site:
        refused = site.raw("facets", q="/word/")
        assert refused.status_code == 400 and "this reads too much" in refused.text
        assert site.get("status")["rollouts"] > 0


def test_a_search_that_takes_too_long_says_how_far_it_came(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        """A search whose second step never comes."""

        def __init__(self) -> None:
            self.ended = threading.Event()

        def __iter__(self) -> Iterator[Any]:
            yield Found([], 40, 100, done=False)
            self.ended.wait(120)

        def cancel(self) -> None:
            self.ended.set()

    slow = Slow()
    monkeypatch.setattr(turns, "SECONDS", 0.3)
    monkeypatch.setattr(Store, "search", lambda *_, **__: slow)
    with serving(store_dir) as site:
        told = site.raw("search", q="word").text.split("\n\n")
    assert '"stopped":true' in told[1] and '"scanned":40' in told[1] and '"done":true' in told[1]
    assert slow.ended.wait(120)


def test_searches_of_many_clients_all_get_on(store_dir: Path) -> None:
    with serving(store_dir) as site, ThreadPoolExecutor(MANY) as pool:
        answers = list(pool.map(lambda _: site.raw("search", q="the").text, range(MANY)))
    assert len(set(answers)) == 1 and '"done":true' in answers[0]
