"""`make bench`: every figure beside its peers, in one run, medians of three.

Prints the table and writes it to docs/benchmarks.md. `ROLLOUTS=100000 make bench` is quicker, and
so is `BENCH_STORE=folder`, a store that `bench/reading.py make folder 1000000` made before.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = ("trackio", "mlflow", "weave")
REPEATS = 3
MILLION = int(os.environ.get("ROLLOUTS", "1000000"))
WITH_BROWSER = str(HERE.parent / ".venv/bin/python")
"""The environment that has Playwright."""


def once(script: str, *arguments: object, python: str = sys.executable) -> dict[str, Any]:
    """One measurement in a process of its own; {} if it failed (said on stderr)."""
    command = [python, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode:
        print(f"{' '.join(map(str, arguments))} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {script} {' '.join(map(str, arguments))}: {found}", file=sys.stderr)
    return found


def median(script: str, *arguments: object, python: str = sys.executable) -> dict[str, float]:
    """Medians of three measurements."""
    runs = [once(script, *arguments, python=python) for _ in range(REPEATS)]
    names = {name for run in runs for name in run}
    return {n: statistics.median(run[n] for run in runs if n in run) for n in sorted(names)}


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE")}
    return {**kept, "ROLLSCOPE_QUIET": "1", "PYTHONPATH": str(HERE), "OPENBLAS_NUM_THREADS": "1"}


class Report:
    """Rows of the table, as they are measured."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def add(self, figure: str, must: str, ours: str, peers: str = "–") -> None:
        self.rows.append((figure, must, ours, peers))

    def markdown(self) -> str:
        head = "| figure | must | Rollscope | peers |\n|---|---|---|---|\n"
        return head + "".join(f"| {' | '.join(row)} |\n" for row in self.rows)


def main() -> None:
    report = Report()
    ours = {kind: median("measure.py", "capture", kind) for kind in "ABT"}
    sealed = {kind: median("measure.py", "sealing", kind) for kind in "ABT"}
    theirs = {
        peer: {kind: once("measure.py", "peer", peer, kind) for kind in "AB"} for peer in PEERS
    }
    for kind, must in (("A", "15 µs"), ("B", "100 µs"), ("T", "40 µs")):
        peers = _beside(theirs, kind, "caller_us", "µs", ours[kind].get("caller_us"))
        report.add(
            f"caller blocked per rollout, {kind}: median · p99",
            f"≤ {must} · ≤ 1 ms",
            f"{ours[kind]['caller_us']:.1f} µs · {ours[kind]['caller_p99_us']:.0f} µs",
            peers,
        )
    for kind, must in (("A", "0.06"), ("B", "0.40")):
        report.add(
            f"CPU per rollout until it is in the live log, {kind}",
            f"≤ {must} ms",
            f"{ours[kind]['cpu_live_ms']:.3f} ms",
            _beside(theirs, kind, "cpu_live_ms", "ms", ours[kind].get("cpu_live_ms")),
        )
    for kind, must in (("A", "0.15"), ("B", "0.80")):
        whole = ours[kind]["cpu_live_ms"] + sealed[kind]["cpu_seal_ms"]
        report.add(f"the same with sealing, {kind}", f"≤ {must} ms", f"{whole:.3f} ms")
    slow = median("measure.py", "slowdown")
    report.add(
        "slow-down of a pure-Python loop at 200 rollouts of T a second",
        "≤ 3 %",
        f"{100 * slow['slowdown']:.1f} % (calls {100 * slow['called']:.1f}, waiting for the thread "
        f"{100 * slow['waited']:.1f})",
        f"without recording it does not run {100 * slow['quiet']:.1f} % of the time",
    )
    for kind, must in (("A", "0.22"), ("B", "0.26"), ("T", "0.22")):
        report.add(
            f"bytes on disk over raw JSON, {kind}, sealed",
            f"≤ {must}",
            f"{sealed[kind]['sealed_ratio']:.3f}",
            _beside(theirs, kind, "live_ratio", "", sealed[kind].get("sealed_ratio")),
        )
    short, long = median("measure.py", "turns", 10), median("measure.py", "turns", 100)
    report.add(
        "agent rollout of 10 and of 100 turns: bytes a turn · CPU a turn",
        "linear: the same",
        f"{short['turn_bytes']:.0f} → {long['turn_bytes']:.0f} B · "
        f"{short['turn_cpu_us']:.0f} → {long['turn_cpu_us']:.0f} µs",
    )
    _reading(report)
    late = median("measure.py", "lag")
    report.add(
        "logged, and in the log while the main thread computes: median · slowest of 200",
        "≤ 50 · ≤ 100 ms",
        f"{late['lag_ms']:.0f} · {late['lag_max_ms']:.0f} ms",
    )
    fresh = median("measure.py", "freshness")
    report.add(
        "logged by one process, seen by another: median · slowest of 20",
        "≤ 1 s",
        f"{fresh['seen_s']:.2f} · {fresh['seen_max_s']:.2f} s",
    )
    grown = median("measure.py", "memory")
    report.add(
        f"growth of memory, 600 MB logged at once, queue of {grown['memory_limit_mb']:.0f} MB",
        "bounded by the queue",
        f"{grown['memory_growth_mb']:.0f} MB",
    )
    light, trackio = median("measure.py", "imports"), median("measure.py", "imports", "trackio")
    report.add(
        "import over plain Python",
        "≤ 150 ms",
        f"{light['import_ms']:.0f} ms",
        f"Trackio {trackio['import_ms']:.0f} ms" if trackio else "–",
    )
    size = once("install.py")
    report.add(
        "whole install, pip included",
        "≤ 120 MB",
        f"{size['install_mb']:.0f} MB" if size else "not measured",
    )
    _write(report, _stages())


def _stages() -> str:
    """What sealing consists of, as a table."""
    found = {kind: once("measure.py", "stages", kind) for kind in "ABT"}
    told = {
        "start": "start of the process, for two logs",
        "read": "read the log: unpack, parse",
        "rows": "lines to the five tables",
        "build": "thin rows, facts folded in",
        "write": "sort, compress, write Parquet",
    }
    rows = ""
    for stage, text in told.items():
        spent = (f"{found[kind].get(f'{stage}_us', math.nan):.0f} µs" for kind in "ABT")
        rows += f"| {text} | {' | '.join(spent)} |\n"
    return "| CPU of sealing a rollout | A | B | T |\n|---|---|---|---|\n" + rows


def _reading(report: Report) -> None:
    trackio = once("reading.py", "trackio", 10_000)
    with tempfile.TemporaryDirectory() as folder:
        once("reading.py", "make", f"{folder}/small", 10_000)
        small = median("reading.py", "ask", f"{folder}/small")
        made = os.environ.get("BENCH_STORE")  # one that was made before, to save minutes
        if not made:
            made = f"{folder}/large"
            once("reading.py", "make", made, MILLION)
        large = median("reading.py", "ask", made)
        viewer = median("browser.py", made, python=WITH_BROWSER)
    newest = trackio.get("newest_ms")
    for name, must_small, must, figure in (
        ("page_ms", "15 ms", "60 ms", "filtered, sorted first page"),
        ("newest_ms", "15 ms", "60 ms", "newest 50"),
        ("histogram_ms", "", "40 ms", "histogram per step"),
        ("get_ms", "", "20 ms", "get one"),
        ("rare_exact_ms", "40 ms", "2,500 ms", "rare word over all text, exact"),
        ("rare_any_ms", "40 ms", "3,500 ms", "rare word over all text, any case"),
        ("first_hit_ms", "", "3,000 ms", "the same, told while it is searched: the first hit"),
    ):
        peer = {"newest_ms": newest, "rare_any_ms": trackio.get("rare_any_ms")}.get(name)
        told = "–" if peer is None else f"Trackio at 10,000: {peer:.0f} ms"
        must_small = f"≤ {must_small}" if must_small else "–"
        report.add(f"{figure}, 10,000 rollouts", must_small, f"{small[name]:.0f} ms", told)
        report.add(f"{figure}, {MILLION:,} rollouts", f"≤ {must}", f"{large[name]:.0f} ms")
    _viewing(report, viewer, median("served.py", "first_page", 10_000))


def _viewing(report: Report, viewer: dict[str, float], served: dict[str, float]) -> None:
    report.add(
        "first page of the list over HTTP, 10,000 rollouts",
        "4 times as fast as Trackio",
        f"{served['rollscope_ms']:.1f} ms (CPU {served['rollscope_cpu_ms']:.1f})"
        if served
        else "not measured",
        f"Trackio's dashboard {served['trackio_ms']:.1f} ms (CPU {served['trackio_cpu_ms']:.1f}), "
        f"{served['times']:.1f}×"
        if served
        else "–",
    )
    for name, must, unit, figure in (
        ("usable_ms", "1,000", "ms", "page usable after navigation"),
        ("filter_ms", "200", "ms", "a field filter to its first rows"),
        ("rare_text_ms", "3,000", "ms", "a rare word in all text to its first rows"),
        ("transcript_ms", "150", "ms", "opening a transcript"),
        ("longest_task_ms", "50", "ms", "main thread blocked while scrolling through all, longest"),
        ("memory_mb", "300", "MB", "memory of the tab"),
        ("live_ms", "2,000", "ms", "a running job's new row seen, slowest of ten (small store)"),
    ):
        told = f"{viewer[name]:.0f} {unit}" if name in viewer else "not measured"
        where = "viewer in Chromium" + ("" if name == "live_ms" else f", {MILLION:,} rollouts")
        report.add(f"{where}: {figure}", f"≤ {must} {unit}", told)
    for name, must, unit, figure in (
        ("long_open_ms", "200", "ms", "opening a thought of 130 kB, 32,000 tokens, five streams"),
        ("long_jump_ms", "100", "ms", "jump to any of its tokens"),
        ("long_find_ms", "300", "ms", "find in a message of 5 MB"),
        ("long_compare_ms", "500", "ms", "compare two of 130 kB, the slowest of three pairs"),
        ("long_memory_mb", "300", "MB", "memory of the tab's process with a message of 50 MB"),
    ):
        told = f"{viewer[name]:.0f} {unit}" if name in viewer else "not measured"
        report.add(f"viewer in Chromium: {figure}", f"≤ {must} {unit}", told)


def _beside(
    theirs: dict[str, dict[str, Any]], kind: str, name: str, unit: str, mine: float | None
) -> str:
    told = []
    for peer, found in theirs.items():
        value = found.get(kind, {}).get(name)
        if value is not None and mine:
            told.append(f"{peer} {_short(value)} {unit} ({value / mine:.1f}×)".replace("  ", " "))
    return ", ".join(told) or "–"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _write(report: Report, stages: str) -> None:
    table = report.markdown()
    print(table)
    versions = []
    for package in ("duckdb", "msgspec", "trackio", "mlflow", "weave"):
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        versions.append(f"{package} {done.stdout.strip()}")
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    text = (HERE / "benchmarks.md.in").read_text()
    text = text.replace("{when}", when).replace("{cores}", str(os.cpu_count()))
    text = text.replace("{python}", platform.python_version()).replace("{table}", table)
    text = text.replace("{versions}", ", ".join(versions)).replace("{stages}", stages)
    (HERE.parent / "docs" / "benchmarks.md").write_text(text)


if __name__ == "__main__":
    main()
