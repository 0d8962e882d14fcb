"""A real server over a real store, on a port of its own."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import uvicorn

from rollscope import server
from rollscope.query import Store
from rollscope.server.serve import listen

from . import made


def pytest_itemcollected(item: Any) -> None:
    """Each route's test of the description has an id of its own: pytest 9.2 drops what schemathesis
    puts in brackets, and xdist runs tests of the same id once."""
    label = getattr(item, "operation_label", None)
    if label is not None and label not in item.nodeid:
        item._id = item.parent.id.child(item.name)


class Served(NamedTuple):
    url: str
    dir: Path

    def get(self, path: str, *, headers: dict[str, str] | None = None, **params: Any) -> Any:
        """The JSON of an answer that must be good."""
        answer = self.raw(path, headers=headers, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def raw(
        self, path: str, *, headers: dict[str, str] | None = None, **params: Any
    ) -> requests.Response:
        return requests.get(f"{self.url}/api/{path}", params=params, headers=headers, timeout=60)


# Answers come up to so many seconds late, in any order: what a test then finds is a race.
LATE = float(os.environ.get("TEST_LATE", "0"))


def _late(app: Any) -> Any:
    async def later(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.sleep(random.uniform(0, LATE))
        await app(scope, receive, send)

    return later if LATE else app


@contextmanager
def serving(directory: Path, **options: Any) -> Iterator[Served]:
    store = Store(directory)
    socket = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        _late(server.app(store, **options)), log_level="warning", timeout_graceful_shutdown=1
    )
    runner = uvicorn.Server(config)
    thread = threading.Thread(target=runner.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    while not runner.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield Served(f"http://127.0.0.1:{socket.getsockname()[1]}", directory)
    finally:
        runner.should_exit = True
        thread.join(30)
        socket.close()


@pytest.fixture(scope="session")
def store_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; tests that write make their own."""
    directory = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        patch.delenv("ROLLSCOPE", raising=False)
        made.make(directory)
    return directory


@pytest.fixture(scope="session")
def site(store_dir: Path) -> Iterator[Served]:
    with serving(store_dir) as served:
        yield served


@pytest.fixture
def serve() -> Callable[..., Any]:
    return serving
