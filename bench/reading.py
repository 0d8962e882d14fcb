"""Reading speed: the same questions of 10,000 and of 1,000,000 rollouts of workload A.

python reading.py make FOLDER 1000000      record, seal and compact them
python reading.py ask FOLDER               ask, a JSON object on stdout
python reading.py trackio 10000            the same of Trackio
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import workloads

RARE = "quetzalcoatl"
"""A word that no cut of text contains; it is planted into one rollout in the middle."""

PAGE = ("id", "step", "split", "task", "index", "reward", "fate", "preview")


def make(folder: str, count: int) -> dict[str, float]:
    """Record `count` rollouts as a trainer would, then bring the files into their final form."""
    import rollscope
    from rollscope.store import paths
    from rollscope.store.seal.compact import compact

    start, done = time.perf_counter(), 0
    with rollscope.init(project="bench", run="A", dir=folder) as run:
        for batch in workloads.steps("A", count // 512 + 1):
            batch = batch[: count - done]
            for rollout in batch:
                rollout.key = None
            if done <= count // 2 < done + len(batch):
                batch[0].messages[1].content = f"{batch[0].messages[1].content} {RARE}"
            run.log(batch)
            done += len(batch)
            run.flush()
    directory = paths.run_dir(Path(folder), "bench", "A")
    settle(directory)
    compact(directory, grace=0.0)
    return {"make_s": time.perf_counter() - start, "rollouts": done}


def settle(directory: Path) -> None:
    """Wait for the sealing helpers."""
    deadline = time.monotonic() + 600
    while any((directory / "live").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.5)


def ask(folder: str) -> dict[str, float]:
    """Median of the warm answers, in milliseconds."""
    import rollscope

    store = rollscope.open(folder)
    total = store.rollouts().count()
    some = store.rollouts("step:3", limit=1)[0].id
    found = store.rollouts(f'"{RARE}"').count()
    assert found == 1, found
    field = "step:2.. stop_reason:stop reward:>0.5"
    return {
        "rollouts": total,
        "page_ms": _ms(lambda: _page(store, field, "-reward")),
        "newest_ms": _ms(lambda: _page(store, "", "-time")),
        "histogram_ms": _ms(lambda: store.histogram_by_step("")),
        "get_ms": _ms(lambda: store.get(some)),
        "rare_exact_ms": _ms(lambda: store.rollouts(f'"{RARE}"').count(), 3),
        "rare_any_ms": _ms(lambda: store.rollouts(RARE.upper()).count(), 3),
        "first_hit_ms": _ms(lambda: _first_hit(store), 3),
    }


def trackio(count: int) -> dict[str, float]:
    """Trackio's own store, asked through its own functions."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        logger = trackio_store(Path(folder), count)
        assert len(logger.search(RARE)) == 1
        return {
            "rollouts": count,
            "newest_ms": _ms(logger.first_page),
            "rare_any_ms": _ms(lambda: logger.search(RARE), 3),
        }


def trackio_store(folder: Path, count: int) -> Any:
    """The same rollouts in a folder of Trackio's."""
    import peers

    logger, done = peers.Trackio(folder), 0
    for batch in workloads.steps("A", count // 512 + 1):
        for rollout in batch[: count - done]:
            if done == count // 2:
                rollout.messages[1].content = f"{rollout.messages[1].content} {RARE}"
            logger.log(rollout)
            done += 1
        time.sleep(0.2)
    logger.finish()
    return logger


def _page(store: Any, query: str, order: str) -> None:
    page = store.rollouts(query, order=order, columns=PAGE).page(50)
    assert len(page.rows) == 50


def _first_hit(store: Any) -> None:
    """As the viewer searches: hits are told while files are read, the newest first."""
    search = store.search(RARE)
    assert any(found.rows for found in search)
    search.cancel()


def _ms(work: Callable[[], Any], times: int = 9) -> float:
    work()
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e3


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    answer = globals()[name](*(int(a) if a.isdigit() else a for a in rest))
    print("\n" + json.dumps(answer))
