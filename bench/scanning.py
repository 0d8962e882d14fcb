"""Scanning: every check looks at new rollouts, by the command that people type.

python scanning.py scan A 100000    scan so many rollouts of workload A, then again; JSON on stdout
python scanning.py page 100000      the first page over HTTP: without findings, with one a rollout
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import workloads
from reading import settle
from served import PAGE, Served, first_page_of, serving

PROCESSES = 2
LOOP = " and once more, I check it again" * 8
"""What `reply.loop` finds at the end of an answer."""


def scan(kind: str, count: int) -> dict[str, float]:
    """Seconds, processor time and memory of a scan of everything, and of one that finds no news."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        make(folder, kind, count)
        first = _scanned(folder)
        again = _scanned(folder)
        return {**first, **{f"again_{name}": value for name, value in again.items()}}


def page(count: int, rounds: int = 40) -> dict[str, float]:
    """The first page of the list from two servers in turn: one store has a finding a rollout."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in ("without", "found"):
            make(f"{folder}/{name}", "A", count, loops=True)
        _scanned(f"{folder}/found")
        with (
            serving("rollscope", f"{folder}/without") as without,
            serving("rollscope", f"{folder}/found") as found,
        ):
            return _in_turn({"without": without, "found": found}, count, rounds)


def make(folder: str, kind: str, count: int, *, loops: bool = False) -> None:
    """A finished run of so many rollouts in its final form."""
    import rollscope
    from rollscope.store import paths
    from rollscope.store.seal.compact import compact

    done = 0
    with rollscope.init(project="bench", run=kind, dir=folder) as run:
        for batch in workloads.steps(kind, -(-count // 512)):
            batch = batch[: count - done]
            for rollout in batch if loops else ():
                rollout.messages[1].content = f"{rollout.messages[1].content}{LOOP}"
            run.log(batch)
            run.flush()
            done += len(batch)
    directory = paths.run_dir(Path(folder), "bench", kind)
    settle(directory)
    compact(directory, grace=0.0)


def _scanned(folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "rollscope", "scan", "--dir", folder, "--json"]
    before, start = _cpu(), time.perf_counter()
    with (
        subprocess.Popen(
            [*command, "--processes", str(PROCESSES)], stdout=subprocess.PIPE, text=True
        ) as process,
        _watched(process.pid) as peak,
    ):
        out, _ = process.communicate()
    told = json.loads(out)
    assert not process.returncode, told
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": _cpu() - before,
        "peak_mb": max(peak, default=0.0),
        "rollouts": told["rollouts"],
        "findings": told["findings"],
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """Memory of a process and of those that it started, in MB, as long as it is open. Pages that
    they share count for each of them."""
    seen: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append(sum(map(_resident, _family(pid))))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _family(int(child))


def _resident(pid: int) -> float:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def _in_turn(servers: dict[str, Served], count: int, rounds: int) -> dict[str, float]:
    asks = {name: first_page_of(server, count) for name, server in servers.items()}
    spent: dict[str, list[float]] = {name: [] for name in servers}
    cpu: dict[str, float] = {}
    for number in range(-5, rounds):  # the first ones warm up
        if number == 0:
            cpu = {name: -server.cpu_ms() for name, server in servers.items()}
        for name, ask in asks.items():
            start = time.perf_counter()
            assert ask() == PAGE
            if number >= 0:
                spent[name].append((time.perf_counter() - start) * 1e3)
    found = {f"{name}_ms": statistics.median(times) for name, times in spent.items()}
    for name, server in servers.items():
        found[f"{name}_cpu_ms"] = (cpu[name] + server.cpu_ms()) / rounds
    found["flagged"] = _flagged(servers["found"])
    return {**found, "times": found["found_ms"] / found["without_ms"]}


def _flagged(server: Served) -> int:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    connection.request("GET", "/api/rollouts?q=flag:reply.loop&limit=1")
    return int(json.loads(connection.getresponse().read())["count"])


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    answer = globals()[name](*(int(a) if a.isdigit() else a for a in rest))
    print("\n" + json.dumps(answer))
