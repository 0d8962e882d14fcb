"""Growth: the same questions of stores from ten thousand rollouts on. `make bench-scale`.

python bench/scale.py                         everything in $SIZES, then docs/scale.md
python bench/scale.py make FOLDER 1000000     a store of segments, as sealers leave them
python bench/scale.py live FOLDER 64          what writers of so many nodes have not sealed yet
python bench/scale.py open FOLDER             up to the counts and the first page
python bench/scale.py compact FOLDER
python bench/scale.py ask FOLDER              each question, again and again

Each of these runs in a process of its own. What is done is kept in out/scale and not done again, so
a run may be stopped at any time. `SIZES=10000,100000 make bench-scale` is quicker; `KEEP=1` keeps
the stores, which take 2 GB a million.

8,192 rollouts of workload A are recorded and sealed by a real writer. A store is made of copies of
that segment with other ids, steps, tasks and times. Above a million, one segment in ten has text.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "scale"
SIZES = [int(size) for size in os.environ.get("SIZES", "10000,100000,1000000,10000000").split(",")]
NODES = (1, 8, 64)
WRITERS = 8
"""Of a node: one for each of its GPUs."""
UNSEALED = 500
"""Rollouts in the log of each, before a sealer takes it (`store/README.md`)."""

SEED = 8192
ALL_TEXT = 1_000_000
"""Larger stores have text in every tenth segment."""
TENTH = 10
TASKS = 64
"""Sets of 64 tasks, one a segment: 4,096 tasks in all."""
RARE = "quetzalcoatl"
PAGE = ("id", "step", "split", "task", "index", "reward", "fate", "preview")
AT_MOST = 10.0
"""Seconds for the repetitions of one question."""


# -- stores --------------------------------------------------------------------------------


def make(folder: str, count: int) -> dict[str, float]:
    """Segments of 8,192 rollouts. Those that are there already are left as they are."""
    from rollscope.store import paths
    from rollscope.store.seal.segment import connect

    seed = _seed()
    directory = paths.run_dir(Path(folder), "bench", "scale")
    paths.ensure_run(directory, "bench", "scale")
    number = -(-count // SEED)
    for k in range(number):
        target = directory / "segments" / f"made-{k}"
        if target.exists():
            continue
        temporary = target.with_name(f".made-{k}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        db = connect(temporary)
        has_text = count <= ALL_TEXT or k % TENTH == number // 2 % TENTH
        size = min(SEED, count - k * SEED)
        _copy(db, seed, temporary, k, size, has_text=has_text, has_rare=k == number // 2)
        db.close()
        shutil.rmtree(temporary / "spill", ignore_errors=True)
        temporary.rename(target)
    bytes = sum(path.stat().st_size for path in directory.rglob("*.parquet"))
    texts = sum(path.stat().st_size for path in directory.rglob("messages.parquet"))
    return {"segments": number, "mb": bytes / 1e6, "text_mb": texts / 1e6}


def _seed() -> Path:
    """The directory of the segment that is copied, recorded if it is not there yet."""
    import rollscope
    import workloads
    from rollscope.store import listing, paths
    from rollscope.store.seal.compact import compact

    directory = paths.run_dir(OUT / "seed", "bench", "seed")
    if not (OUT / "seed" / "finished").exists():
        shutil.rmtree(OUT / "seed", ignore_errors=True)
        with rollscope.init(project="bench", run="seed", dir=OUT / "seed") as run:
            for batch in workloads.steps("A", SEED // 512):
                run.log(batch)
                run.flush()
        while any((directory / "live").iterdir()):
            time.sleep(0.5)
        compact(directory, grace=0.0)  # if it was more than one log
        (OUT / "seed" / "finished").touch()
    (unit,) = listing.list_run(directory).units.values()
    return unit.directory


def _copy(
    db: DuckDBPyConnection,
    seed: Path,
    target: Path,
    k: int,
    size: int,
    *,
    has_text: bool,
    has_rare: bool,
) -> None:
    """The segment again under other names, later: its number is `k`."""
    from rollscope.model import schema
    from rollscope.store import units
    from rollscope.store.seal.segment import describe

    def read(table: str) -> str:
        return f"read_parquet('{seed}/{table}.parquet')"

    steps = SEED // 512
    id = f"substr(md5(concat({{}}, '/{k}')), 1, 20)"
    bodies = "true" if has_text else "false"
    length = f"{'messages' if has_text else 0} AS messages"
    db.execute(
        f"CREATE TEMP TABLE made_rollouts AS SELECT * REPLACE ({id.format('id')} AS id, "
        f"'scale' AS run, step + {k * steps} AS step, concat(step + {k * steps}, '/', task) "
        f'AS "group", concat(task, \'-{k % TASKS}\') AS task, "time" + {600 * k} AS "time", '
        f"concat('{k}/', key) AS key, {length}) FROM {read('rollouts')} "
        f'ORDER BY step, "group", "index" LIMIT {size}'
    )
    rare = f"concat(text, ' {RARE}')" if has_rare else "text"
    new, mine = id.format("rollout"), "rollout IN (SELECT id FROM made_rollouts)"
    db.execute("CREATE TEMP TABLE rare AS SELECT min(id) AS id FROM made_rollouts")
    db.execute(
        f"CREATE TEMP VIEW made_messages AS SELECT * REPLACE (CASE WHEN n = 1 AND rollout = "
        f"(SELECT id FROM rare) THEN {rare} ELSE text END AS text) FROM (SELECT * REPLACE "
        f"({new} AS rollout) FROM {read('messages')} WHERE {bodies}) WHERE {mine}"
    )
    for table in ("spans", "facts"):
        db.execute(
            f"CREATE TEMP VIEW made_{table} AS SELECT * FROM (SELECT * REPLACE ({new} AS rollout) "
            f"FROM {read(table)}) WHERE {mine}"
        )
    db.execute(f"CREATE TEMP VIEW made_metrics AS FROM {read('metrics')} WHERE false")
    sources = {table: f"made_{table}" for table in schema.TABLES}
    rows = units.write_tables(db, target, sources)
    info = units.UnitInfo(
        version=schema.VERSION, columns=units.fingerprint(), logs={f"made-{k}": 1}, rows=rows
    )
    info.files = units.file_sums(target, rows)
    describe(db, info, sources)
    units.write_info(target, info)


def live(folder: str, nodes: int) -> dict[str, float]:
    """Eight writers on each node, each with a log that nobody has sealed."""
    import growth

    growth.live(folder, UNSEALED, writers=nodes * WRITERS, run="scale")
    return {"logs": nodes * WRITERS, "unsealed": nodes * WRITERS * UNSEALED}


def compact(folder: str) -> dict[str, float]:
    """One compaction, by one thread as always."""
    from rollscope.store import paths
    from rollscope.store.seal.compact import compact as merge

    directory = paths.run_dir(Path(folder), "bench", "scale")
    report, spent = None, _Spent()
    report = merge(directory, grace=0.0)
    assert not report.refused, report.refused
    mb = sum(path.stat().st_size for path in directory.rglob("*.parquet")) / 1e6
    return {**spent.seconds("compact"), "parts": report.parts, "mb": mb, "memory_mb": _memory()}


# -- questions -----------------------------------------------------------------------------


def open(folder: str) -> dict[str, float]:
    """The first answer of a process that looks for the first time."""
    import rollscope

    before, spent = _memory(), _Spent()
    store = rollscope.open(folder)
    total = store.rollouts().counts().total
    assert len(store.rollouts("", order="-time", columns=PAGE).page(50).rows) == 50
    return {**spent.seconds("open"), "rollouts": total, "memory_mb": _memory() - before}


def ask(folder: str) -> dict[str, float]:
    """Medians of the warm answers, in milliseconds: on the clock and of CPU."""
    import rollscope

    store = rollscope.open(folder)
    (step,) = (row.step for row in store.rollouts('"' + RARE + '"', columns=("step",)))
    some = store.rollouts(f'step:{step} "{RARE}"', limit=1)[0].id
    found = "step:2.. stop_reason:stop reward:>0.5"
    questions: dict[str, Callable[[], object]] = {
        "page": lambda: store.rollouts("", order="-time", columns=PAGE).page(50),
        "filter": lambda: store.rollouts(found, order="-reward", columns=PAGE).page(50),
        "histogram": lambda: store.histogram_by_step(""),
        "facets": lambda: store.facets(found),
        "get": lambda: store.get(some),
        "tasks": lambda: store.tasks("", limit=1000),
        "search": lambda: store.rollouts(f'"{RARE}"').count(),
        "search_any": lambda: store.rollouts(RARE.upper()).count(),
    }
    answers: dict[str, float] = {}
    for name, question in questions.items():
        answers |= {f"{name}_{unit}": value for unit, value in _median(question).items()}
    return {**answers, "memory_mb": _memory()}


def _median(question: Callable[[], object]) -> dict[str, float]:
    """Up to nine times, without the first unless it alone takes long."""
    wall: list[float] = []
    cpu: list[float] = []
    while not wall or (len(wall) < 10 and sum(wall) < AT_MOST):
        spent = _Spent()
        question()
        wall.append(1e3 * spent.wall)
        cpu.append(1e3 * spent.cpu)
    skip = int(len(wall) > 1)
    return {"ms": statistics.median(wall[skip:]), "cpu_ms": statistics.median(cpu[skip:])}


class _Spent:
    """Time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu

    def seconds(self, name: str) -> dict[str, float]:
        return {f"{name}_s": self.wall, f"{name}_cpu_s": self.cpu}


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# -- one size after the other --------------------------------------------------------------


def main() -> None:
    import curves

    for size in SIZES:
        steps = (
            ("make", "make", str(size)),
            ("open_segments", "open"),
            ("compact", "compact"),
            ("open", "open"),
            ("ask", "ask"),
        )
        _measured(f"{size}", steps)
    for nodes in NODES:
        _measured(f"nodes-{nodes}", (("live", "live", str(nodes)), ("open", "open")))
    curves.write(OUT)


def _measured(name: str, steps: tuple[tuple[str, ...], ...]) -> None:
    """One store: what was not measured yet. It is removed at the end."""
    file, store = OUT / f"{name}.json", OUT / name
    had: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for key, command, *arguments in steps:
        if key not in had:
            had[key] = _once(command, store, *arguments)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(had, indent=1))
    if not os.environ.get("KEEP"):
        shutil.rmtree(store, ignore_errors=True)


def _once(command: str, store: Path, *arguments: str) -> dict[str, float]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE")}
    env = {**kept, "ROLLSCOPE_QUIET": "1", "PYTHONPATH": str(HERE), "OPENBLAS_NUM_THREADS": "1"}
    line = [sys.executable, __file__, command, str(store), *arguments]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, env=env, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {store.name} {command}: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    name, *rest = sys.argv[1:] or ["main"]
    answer = globals()[name](*(int(a) if a.isdigit() else a for a in rest))
    print("\n" + json.dumps(answer))
