"""Who closes the page does not leave the engine working for nobody."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import duckdb
import pytest

import rollscope.server.selecting as selecting
from rollscope.query import Store
from rollscope.server import params as p
from rollscope.server import routes
from rollscope.server import shapes as s
from rollscope.server.desk import Desk
from rollscope.store.read.cancel import Cancellable, Cancelled

from .conftest import serving

ENDLESS = "SELECT sum(hash(a.range + b.range)) FROM range(1000000) a, range(1000000) b"
"""Days of work for the engine."""


def test_a_query_ends_when_its_client_leaves(store_dir: Path) -> None:
    store, client, ended = Store(store_dir), Cancellable(), threading.Event()
    outcome: list[Exception] = []

    def ask() -> None:
        try:
            client.run(lambda: store.sql(ENDLESS).fetchall())
        except Exception as error:
            outcome.append(error)
        ended.set()

    threading.Thread(target=ask, daemon=True).start()
    while not ended.wait(0.05):
        client.cancel()
    assert isinstance(outcome[0], Cancelled)
    with pytest.raises(Cancelled):
        client.run(lambda: store.rollouts("").count())
    assert store.rollouts("").count() > 0, "others go on asking"
    store.close()


def test_an_interruption_that_nobody_asked_for_is_an_error(store_dir: Path) -> None:
    client = Cancellable()

    def work() -> None:
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    with pytest.raises(duckdb.InterruptException):
        client.run(work)


def test_the_server_ends_the_query_of_a_client_that_hangs_up(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    def facets(desk: Desk, _: p.FacetsOf) -> s.Facets:
        began.set()
        try:
            desk.store.sql(ENDLESS).fetchall()
            return s.Facets(facets=[])
        finally:
            ended.set()

    slow = [
        routes.Route("GET", r.path, facets) if r.answerer is selecting.facets else r
        for r in routes.ROUTES
    ]
    monkeypatch.setattr(sys.modules["rollscope.server.app"], "ROUTES", slow)
    with serving(store_dir) as site:
        port = int(site.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(f"GET /api/facets HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n".encode())
            assert began.wait(120)
            time.sleep(0.1)  # into the middle of it
            assert not ended.is_set()
        assert ended.wait(120), "the engine goes on for nobody"
        assert site.get("status")["rollouts"] > 0


SLOW = """
import time
from rollscope.server.keeper import Keeper
run = Keeper._run
Keeper._run = lambda self: (run(self), time.sleep(0.5))
"""
"""A thread is slow to end, as on a busy machine."""


@pytest.mark.parametrize("slow", ["", SLOW], ids=["quick", "slow"])
def test_a_page_that_is_still_open_is_no_error_when_the_server_is_stopped(
    store_dir: Path, slow: str
) -> None:
    command = ["view", "--no-browser", "--port", "0", "--dir", str(store_dir)]
    code = f"{slow}from rollscope.cli import main; main({command})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = re.findall(r"http://\S+/", server.stdout.readline())[0]
        with urllib.request.urlopen(f"{url}api/events", timeout=60) as line:
            assert line.readline().startswith(b"event")
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=300)
    assert errors == ""
