"""The servers that people look at their rollouts through, asked over HTTP.

python served.py rollscope FOLDER      serve a store; the address on stdout, ends with stdin
python served.py trackio FOLDER        the same for a folder of Trackio's, by its own dashboard
python served.py first_page 10000      both at once over the same rollouts: a JSON object on stdout
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

PAGE = 50
"""Rows of Trackio's page of traces."""
TYPES = Path(__file__).parents[1] / "viewer/src/api/types.ts"


def first_page(count: int, rounds: int = 30) -> dict[str, float]:
    """The first page of the list, asked of both in turn: medians, and how much faster ours is."""
    import reading

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        reading.make(f"{folder}/ours", count)
        reading.trackio_store(Path(folder, "theirs"), count)
        with (
            serving("rollscope", f"{folder}/ours") as ours,
            serving("trackio", f"{folder}/theirs") as theirs,
        ):
            return _in_turn(ours, theirs, count, rounds)


def _in_turn(ours: Served, theirs: Served, count: int, rounds: int) -> dict[str, float]:
    asks = {
        "rollscope": (ours, first_page_of(ours, count)),
        "trackio": (theirs, _trackio(theirs)),
    }
    found: dict[str, float] = {}
    spent: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(-3, rounds):  # the first ones warm up
        if number == 0:
            found = {f"{name}_cpu_ms": -server.cpu_ms() for name, (server, _) in asks.items()}
        for name, (_, ask) in asks.items():
            start = time.perf_counter()
            rows = ask()
            if number >= 0:
                spent[name].append((time.perf_counter() - start) * 1e3)
            assert rows == PAGE, (name, rows)
    for name, (server, _) in asks.items():
        found[f"{name}_cpu_ms"] = (found[f"{name}_cpu_ms"] + server.cpu_ms()) / rounds
        found[f"{name}_ms"] = statistics.median(spent[name])
    return {**found, "times": found["trackio_ms"] / found["rollscope_ms"]}


def _listed() -> str:
    """The columns of the viewer's lists."""
    listed = re.search(r"const LISTED = \[(.*?)\]", TYPES.read_text(), re.DOTALL)
    assert listed is not None, TYPES
    return ",".join(re.findall(r'"(\w+)"', listed[1]))


def first_page_of(server: Served, count: int) -> Callable[[], int]:
    """As the viewer asks when it opens. Rows are looked for each time; how many rollouts each
    step has is kept by the server while the store stays as it is."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    path = f"/api/rollouts?at=0&limit={PAGE}&columns={_listed()}"

    def ask() -> int:
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        assert answer["count"] == count
        return len(answer["rows"])

    return ask


def _trackio(server: Served) -> Callable[[], int]:
    """As its page of traces asks (frontend/src/pages/Traces.svelte)."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    asked = {"project": "bench", "run": "run", "run_id": None, "search": "", "step": None}
    body = json.dumps({**asked, "sort": "request_time_desc", "limit": PAGE, "offset": 0})

    def ask() -> int:
        connection.request("POST", "/api/get_traces", body, {"content-type": "application/json"})
        return len(json.loads(connection.getresponse().read())["data"])

    return ask


class Served(NamedTuple):
    """A running server."""

    url: str
    pid: int

    def cpu_ms(self) -> float:
        """What its process has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(name: str, folder: str) -> Iterator[Served]:
    """A server in a process of its own."""
    command = [sys.executable, __file__, name, folder]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("http"):
                break
        yield Served(line.strip(), process.pid)
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


def rollscope(folder: str) -> None:
    import uvicorn

    from rollscope import server
    from rollscope.query import Store
    from rollscope.server.serve import listen

    socket = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        server.app(Store(folder)), log_level="warning", timeout_graceful_shutdown=1
    )
    runner = uvicorn.Server(config)
    thread = threading.Thread(target=runner.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    print(f"http://127.0.0.1:{socket.getsockname()[1]}", flush=True)
    sys.stdin.read()
    runner.should_exit = True
    thread.join(30)


def trackio(folder: str) -> None:
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    _, url, _, _ = trackio.show(project="bench", open_browser=False, block_thread=False)
    print(url, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    name, given = sys.argv[1:]
    if name == "first_page":
        print("\n" + json.dumps(first_page(int(given))))
    else:
        {"rollscope": rollscope, "trackio": trackio}[name](given)
