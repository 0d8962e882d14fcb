"""One measurement in one process: `python measure.py NAME ARGUMENTS`, a JSON object on stdout.

A process of its own for each, so that nothing is warm that would not be, and CPU time is that
of the thing measured (sealing processes included where the name says so).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import workloads

WARM = 64
COUNT = {"A": 3, "B": 6, "T": 3}
"""Steps of each workload: 1,536, 768 and 1,536 rollouts."""


def capture(kind: str) -> dict[str, float]:
    """What `run.log` costs the caller, the process until all is in the log, and the disk."""
    import rollscope

    batches = list(workloads.steps(kind, COUNT[kind]))
    rollouts = [rollout for batch in batches for rollout in batch]
    raw = sum(map(workloads.raw_bytes, rollouts[WARM:]))
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run=kind, dir=folder)
        for rollout in rollouts[:WARM]:
            run.log(rollout)
        run.flush()
        before = _bytes(Path(folder))
        # At the pace of a fast trainer: one group at a time, not one endless loop.
        times, cpu = _timed(run.log, rollouts[WARM:], run.flush, pause=0.005)
        live = _bytes(Path(folder)) - before
        run.finish()
        return {
            **times,
            "cpu_live_ms": cpu,
            "live_ratio": live / raw,
            "raw_bytes": raw / len(rollouts[WARM:]),
        }


def peer(name: str, kind: str) -> dict[str, float]:
    """The same for one of the peers."""
    import peers

    batches = list(workloads.steps("A" if kind == "T" else kind, COUNT[kind]))
    rollouts = [rollout for batch in batches for rollout in batch][
        : 600 if name == "mlflow" else None
    ]
    raw = sum(map(workloads.raw_bytes, rollouts[WARM:]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        logger = peers.PEERS[name](Path(folder) / "store")
        for rollout in rollouts[:WARM]:
            logger.log(rollout)
        time.sleep(1.0)
        times, cpu = _timed(logger.log, rollouts[WARM:], logger.finish, pause=0.005)
        size = _bytes(Path(folder)) * (len(rollouts) - WARM) / len(rollouts)
        return {**times, "cpu_live_ms": cpu, "live_ratio": size / raw}


def sealing(kind: str) -> dict[str, float]:
    """CPU of sealing two full logs of this workload as a writer's sealer does, in one process;
    and the bytes left."""
    with tempfile.TemporaryDirectory() as folder:
        directory, count, raw = _unsealed(kind, Path(folder), logs=2)
        logs = sorted(log.name.partition(".")[0] for log in (directory / "live").iterdir())
        used = _children([[sys.executable, "-m", "rollscope.store.seal", str(directory), *logs]])
        sealed = _bytes(directory / "segments")
        return {"cpu_seal_ms": used / count * 1e3, "sealed_ratio": sealed / raw, "count": count}


def stages(kind: str) -> dict[str, float]:
    """What sealing consists of: CPU of each stage, microseconds a rollout, for two logs."""
    with tempfile.TemporaryDirectory() as folder:
        directory, count, _ = _unsealed(kind, Path(folder), logs=2)
        used = {"start": _children([[sys.executable, "-m", "rollscope.store.seal", folder]])}
        from rollscope.store import units
        from rollscope.store.seal import segment

        def timed(module: Any, name: str, stage: str) -> None:
            work = getattr(module, name)

            def run(*args: Any, **kwargs: Any) -> Any:
                start = time.process_time()
                try:
                    return work(*args, **kwargs)
                finally:
                    used[stage] = used.get(stage, 0.0) + time.process_time() - start

            setattr(module, name, run)

        timed(segment, "_load", "read")
        timed(segment, "stage", "rows")
        timed(segment, "build", "build")
        timed(units, "copy", "write")
        for log in sorted((directory / "live").iterdir()):
            segment.seal(directory, log.name.partition(".")[0])
        used["build"] -= used["write"]
        return {f"{stage}_us": 1e6 * spent / count for stage, spent in used.items()}


def _unsealed(kind: str, folder: Path, logs: int) -> tuple[Path, int, int]:
    """A run directory with so many logs, all but full; its rollouts, and their raw bytes."""
    os.environ["ROLLSCOPE_SEAL"] = "off"
    import rollscope
    from rollscope.store.write.log import MAX_RAW

    run = rollscope.init(project="bench", run=kind, dir=folder)
    count = raw = 0
    for batch in workloads.steps(kind, 1000):
        run.log(batch)
        run.flush()
        count += len(batch)
        raw += sum(map(workloads.raw_bytes, batch))
        if run.counters.raw_bytes > 0.95 * logs * MAX_RAW:
            break
    run.finish()
    return run.directory, count, raw


def slowdown(pace: int = 200, seconds: float = 0.4) -> dict[str, float]:
    """What recording takes from a pure-Python loop that logs `pace` rollouts of T a second: shares
    of its time.

    Speeds of two slices differ by more than that, even on a quiet machine. So what is taken is
    counted: the processor time of the calls, and the time in which the loop does not run, because
    another thread has the interpreter. Slices without recording take turns with the others: what
    other programs take from the loop is in both.
    """
    import rollscope

    rollouts = [r for batch in workloads.steps("T", 3) for r in batch]
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="slow", dir=folder)
        run.log(rollouts[:32])
        run.flush()
        quiet, waits, calls, threads, at = [], [], [], [], 32
        for _ in range(15):
            quiet.append(_spin(seconds, None, 0)[0])
            batch = rollouts[at : at + int(pace * seconds) + 1]
            at += len(batch)
            others = time.process_time() - time.thread_time()
            waited, called = _spin(seconds, run.log, pace, batch)
            threads.append((time.process_time() - time.thread_time() - others) / seconds)
            waits.append(waited)
            calls.append(called)
            run.flush()
            time.sleep(0.05)
        run.finish()
    waited, called = statistics.mean(waits) - statistics.mean(quiet), statistics.mean(calls)
    return {
        "slowdown": waited + called,
        "waited": waited,
        "called": called,
        "quiet": statistics.mean(quiet),
        "thread_share": statistics.mean(threads),
    }


def _spin(
    seconds: float, log: Callable[..., Any] | None, pace: int, batch: Any = ()
) -> tuple[float, float]:
    """A loop of pure Python that logs along the way. The share of its time in which it did not
    run, and the share that the calls took."""
    start, begun = time.perf_counter(), time.thread_time()
    called, given = 0.0, iter(batch)
    due = start
    while (now := time.perf_counter()) - start < seconds:
        if log is not None and now >= due:
            due += 1 / pace
            rollout = next(given, None)
            if rollout is not None:
                before = time.thread_time()
                log(rollout)
                called += time.thread_time() - before
        total = 0
        for i in range(500):
            total += i * i % 7
    took = time.perf_counter() - start
    return 1 - (time.thread_time() - begun) / took, called / took


def turns(count: int) -> dict[str, float]:
    """A live rollout of `count` turns: bytes and CPU."""
    import rollscope

    texts = workloads.Texts(1)
    words = [[texts.cut(200)[0] for _ in range(2 * count)] for _ in range(10)]
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="turns", dir=folder)
        run.flush()
        before, start = _bytes(Path(folder)), time.process_time()
        for repeat in range(10):
            with run.rollout(step=0, task=f"t{repeat}", index=0) as live:
                for turn in range(count):
                    live.message("user", words[repeat][2 * turn])
                    live.message("assistant", words[repeat][2 * turn + 1], sampled=True)
        run.flush()
        used = time.process_time() - start
        size = _bytes(Path(folder)) - before
        run.finish()
    return {"turn_bytes": size / 10 / count, "turn_cpu_us": used / 10 / count * 1e6}


def lag() -> dict[str, float]:
    """Milliseconds from `log` until the rollout lies in the log, while the main thread computes:
    what a kill costs. Median and worst of 200."""
    import rollscope

    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="p", run="r", dir=folder)
        run.log(rollscope.Rollout(step=0))
        run.flush()
        delays = []
        for number in range(200):
            run.log(rollscope.Rollout(id=f"r{number}", step=0))
            start = time.perf_counter()
            while run.queued:
                pass
            delays.append(time.perf_counter() - start)
        run.finish()
    return {"lag_ms": 1e3 * statistics.median(delays), "lag_max_ms": 1e3 * max(delays)}


def freshness() -> dict[str, float]:
    """Seconds from `log` in one process until a reader in another sees it: median of 20."""
    import rollscope

    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import sys, time, rollscope\n"
            "run = rollscope.init(project='p', run='r', dir=sys.argv[1])\n"
            "for line in sys.stdin:\n"
            "    run.log(rollscope.Rollout(id=line.strip(), step=0))\n"
        )
        writer = subprocess.Popen(
            [sys.executable, "-c", code, folder], stdin=subprocess.PIPE, text=True
        )
        assert writer.stdin is not None
        store, delays = rollscope.open(folder), []
        for number in range(21):
            writer.stdin.write(f"r{number}\n")
            writer.stdin.flush()
            start = time.perf_counter()
            while not store.rollouts(f"id:r{number}").count():
                time.sleep(0.005)
            delays.append(time.perf_counter() - start)
        writer.stdin.close()
        writer.wait()
    return {"seen_s": statistics.median(delays[1:]), "seen_max_s": max(delays[1:])}


def memory(limit_mb: int = 64) -> dict[str, float]:
    """Growth of the process when far more is logged at once than the queue may hold."""
    os.environ["ROLLSCOPE_QUEUE"] = str(limit_mb << 20)
    import rollscope

    os.environ["ROLLSCOPE_SEAL"] = "off"
    text = "x" * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="memory", dir=folder)
        run.log(rollscope.Rollout(step=0))
        run.flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for step in range(600):
            message = rollscope.Message(role="user", content=text + str(step))
            run.log(rollscope.Rollout(step=step, messages=[message]))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        run.finish()
    return {"memory_growth_mb": grown / 1024, "memory_limit_mb": limit_mb}


def imports(module: str = "rollscope") -> dict[str, float]:
    """Time of `import rollscope` over that of plain Python, median of 9 processes each."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    with_it = statistics.median(once(f"import {module}") for _ in range(9))
    return {"import_ms": 1e3 * (with_it - statistics.median(once("pass") for _ in range(9)))}


# -- parts -----------------------------------------------------------------------------


def _timed(
    log: Callable[[Any], Any], rollouts: list[Any], end: Callable[[], Any], *, pause: float
) -> tuple[dict[str, float], float]:
    """Time of each call, and CPU per rollout until everything is written."""
    times = []
    start = time.process_time()
    for number, rollout in enumerate(rollouts):
        begin = time.perf_counter()
        log(rollout)
        times.append(time.perf_counter() - begin)
        if number % 8 == 7:
            time.sleep(pause)
    end()
    cpu = (time.process_time() - start) / len(rollouts) * 1e3
    times.sort()
    return {
        "caller_us": statistics.median(times) * 1e6,
        "caller_p99_us": times[int(0.99 * len(times))] * 1e6,
    }, cpu


def _children(commands: list[list[str]]) -> float:
    """CPU seconds of these processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


if __name__ == "__main__":
    assert threading.active_count() == 1
    found = globals()[sys.argv[1]](*(int(a) if a.isdigit() else a for a in sys.argv[2:]))
    print("\n" + json.dumps(found))
