"""What opening a running job costs: CPU and memory of a reader that looks for the first time.

python bench/growth.py record FOLDER 100000     a job that annotates every rollout a step later
python bench/growth.py live FOLDER 100000       rollouts that nobody sealed
python bench/growth.py facts FOLDER 100000      rollouts that are sealed, and their facts not folded
python bench/growth.py logs FOLDER 1000         that many live logs
python bench/growth.py runs FOLDER 1000         that many runs
python bench/growth.py segments FOLDER 200      that many sealed files, of 256 rollouts each
python bench/growth.py finished FOLDER 1000     that many runs, each sealed
python bench/growth.py open FOLDER              open it; a JSON object on stdout
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollscope import Rollout

A_STEP = 512
PAGE = ("id", "step", "split", "task", "index", "reward", "fate", "preview")


def record(folder: str, count: int) -> dict[str, float]:
    """A trainer that goes on while we look: it is still recording when this returns."""
    import os

    import rollscope

    run = rollscope.init(project="bench", run="growth", dir=folder)
    for step in range(count // A_STEP):
        run.log(list(_rollouts(step)), step=step)
        for index in range(A_STEP if step else 0):
            run.annotate(key=f"{step - 1}/{index}", advantage=index / A_STEP, fate="trained")
        run.flush()
    _settle(Path(folder))
    os._exit(0)  # as if it went on: nothing is finished


def live(folder: str, count: int, writers: int = 1, run: str = "growth") -> dict[str, float]:
    """Logs as writers leave them, without their sealers."""
    from rollscope.model import wire
    from rollscope.store import paths
    from rollscope.store.write.log import Entry, Limits, LogWriter
    from rollscope.store.writers import WriterInfo, place

    directory = paths.run_dir(Path(folder), "bench", run)
    for number in range(writers):
        info = WriterInfo(
            writer=f"w{number}", project="bench", run=run, launch="l", host="h", pid=1,
            place=place(), started=time.time(),
        )  # fmt: skip
        log = LogWriter(directory, info, Limits(seal=False))
        for step in range(max(1, count // A_STEP)):
            some = list(_rollouts(step, f"{run}-{number}"))[: count if count < A_STEP else A_STEP]
            lines = (wire.rollout_line(r) for r in some)
            log.write(
                [
                    Entry(line, "rollouts", r.id, "whole")
                    for r, line in zip(some, lines, strict=True)
                ]
            )
        log.beat()
    return {}


def facts(folder: str, count: int) -> dict[str, float]:
    """Facts that come after their rollouts were sealed."""
    from rollscope.model import Fact, wire
    from rollscope.store import paths
    from rollscope.store.seal.segment import seal
    from rollscope.store.write.log import Entry, Limits, LogWriter
    from rollscope.store.writers import WriterInfo, place

    live(folder, count)
    directory = paths.run_dir(Path(folder), "bench", "growth")
    for path in sorted((directory / "live").iterdir()):
        seal(directory, path.name.removesuffix(paths.LOG_ENDING))
    info = WriterInfo(
        writer="late", project="bench", run="growth", launch="l", host="h", pid=1,
        place=place(), started=time.time(),
    )  # fmt: skip
    log = LogWriter(directory, info, Limits(seal=False))
    for step in range(count // A_STEP):
        made = [
            Fact(rollout=r.id or "", name="advantage", value=0.5, time=time.time())
            for r in _rollouts(step, "growth-0")
        ]
        log.write([Entry(wire.facts_line(made), "facts", None, "whole")])
    log.beat()
    for path in sorted((directory / "live").iterdir()):
        seal(directory, path.name.removesuffix(paths.LOG_ENDING))
    return {}


def logs(folder: str, count: int) -> dict[str, float]:
    return live(folder, 4, writers=count)


def runs(folder: str, count: int) -> dict[str, float]:
    for number in range(count):
        live(folder, 4, run=f"r{number}")
    return {}


def segments(folder: str, count: int) -> dict[str, float]:
    live(folder, 256, writers=count)
    return _seal(Path(folder))


def finished(folder: str, count: int) -> dict[str, float]:
    runs(folder, count)
    return _seal(Path(folder))


def _seal(folder: Path) -> dict[str, float]:
    """Seal every log."""
    from rollscope.store import paths
    from rollscope.store.seal.segment import seal

    for path in sorted(folder.rglob(f"live/*{paths.LOG_ENDING}")):
        seal(path.parent.parent, path.name.removesuffix(paths.LOG_ENDING))
    return {}


def open(folder: str) -> dict[str, float]:
    """CPU and memory up to the counts and the first page, of a second page, and of one after so
    many that files were gathered."""
    import rollscope

    before, began = _memory(), time.process_time()
    store = rollscope.open(folder)
    counts = store.rollouts().counts()
    page = store.rollouts("", order="-time", columns=PAGE).page(50)
    opened = time.process_time() - began
    grown = _memory() - before
    began = time.process_time()
    for _ in range(5):
        store.rollouts("step:2..", order="-reward", columns=PAGE).page(50)
    query = (time.process_time() - began) / 5
    for _ in range(40):
        store.rollouts("step:..5", order="-reward", columns=PAGE).page(50)
    began = time.process_time()
    for _ in range(5):
        store.rollouts("step:1..", order="-reward", columns=PAGE).page(50)
    later = (time.process_time() - began) / 5
    tail = store.reader.connection.execute(
        "SELECT (SELECT count(*) FROM tail.rollouts), (SELECT count(*) FROM tail.late)"
    ).fetchone()
    began = time.process_time()
    store.reader.refresh()
    return {
        "rollouts": counts.total,
        "shown": len(page.rows),
        "unsealed": tail[0] if tail else 0,
        "unfolded": tail[1] if tail else 0,
        "segments": len(store.reader.units),
        "open_cpu_s": round(opened, 3),
        "open_memory_mb": round(grown, 1),
        "query_cpu_ms": round(1e3 * query, 2),
        "later_query_cpu_ms": round(1e3 * later, 2),
        "refresh_cpu_ms": round(1e3 * (time.process_time() - began), 2),
    }


def _rollouts(step: int, name: str = "") -> Iterator[Rollout]:
    from rollscope import Message, Rollout
    from rollscope.model import keyed_id

    for index in range(A_STEP):
        key = f"{name}{step}/{index}"
        yield Rollout(
            id=keyed_id("bench", "growth", "l", key) if name else None, key=key, step=step,
            task=f"q{index // 8}",
            index=index % 8, split="train", reward=index % 2, time=time.time(),
            messages=[
                Message(role="user", content=f"question {index} " * 20),
                Message(role="assistant", content=f"answer {step} {index} " * 40, sampled=True),
            ],
        )  # fmt: skip


def _settle(folder: Path) -> None:
    """Wait until the writer's helpers have nothing more to do."""
    deadline, quiet = time.monotonic() + 600, 0.0
    while quiet < 10 and time.monotonic() < deadline:
        before = _state(folder)
        time.sleep(1)
        quiet = quiet + 1 if _state(folder) == before else 0


def _state(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*/*/[lsm]*/*"))


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    answer = globals()[name](*(int(a) if a.isdigit() else a for a in rest))
    print("\n" + json.dumps(answer))
