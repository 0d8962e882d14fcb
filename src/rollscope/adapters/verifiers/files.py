"""What verifiers and prime-rl write: one episode a line.

| writer | files |
|---|---|
| verifiers `eval` | `traces.jsonl` |
| prime-rl to August 2026 | `rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl` |
| verifiers v0, until 0.3.0 | `results.jsonl`: see `v0` |
| prime-rl since | `monitors/file/traces/stream.jsonl`, or numbered chunks of it below `stream/`, \
sealed ones compressed (`.zst`); what was learned later lies in `annotations/<producer>` |

`read` takes a file, or a directory with one of these below it. In prime-rl's older layout an
episode that the trainer learned from stands twice, in `all` and, with its advantages, in
`effective`: it is read once, from there. In the newer one the annotations are folded in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...model import Rollout
from ...model.problem import Problem
from .._lines import first_record, numbers, records
from . import v0
from .convert import convert

_STEP = re.compile(r"step_(\d+)")
_STREAMS = ("advantages", "trainer_logprobs", "entropies", "is_masked")


def recognise(path: str | Path) -> bool:
    """Is this a file of episodes or traces, or a run's directory of verifiers or prime-rl?"""
    if v0.results(Path(path)) is not None:
        return True
    with contextlib.suppress(Exception):
        record = first_record(_sources(Path(path))[0])
        return isinstance(record.get("nodes"), list) or (
            isinstance(record.get("traces"), list) and "task" in record
        )
    return False


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """The rollouts in the file or below the directory."""
    path = Path(path)
    if (results := v0.results(path)) is not None:
        yield from v0.read(results)
        return
    rollouts = path / "rollouts" if (path / "rollouts").is_dir() else path
    if path.is_dir() and any(rollouts.glob("step_*/*/*/traces.jsonl")):
        yield from _cohorts(rollouts)
        return
    updates = _updates(_traces_dir(path)) if path.is_dir() else {}
    for file in _sources(path):
        for record in records(file):
            for trace in _traces(record):
                for update in updates.get(str(trace.get("id")), ()):
                    _fold(trace, update)
            yield from _rollouts(record, file)


def files(folder: Path) -> list[Path]:
    """The files of a run's directory that are read, all together."""
    if (results := v0.results(folder)) is not None:
        return v0.beside(results)
    annotations = _traces_dir(folder) / "annotations"
    return [*_sources(folder), *(file for file in annotations.rglob("*") if file.is_file())]


def _traces(record: dict[str, Any] | Problem) -> list[dict[str, Any]]:
    if isinstance(record, Problem):
        return []
    found = record.get("traces") if "traces" in record else [record]
    return [trace for trace in found or () if isinstance(trace, dict)]


def read_metrics(path: str | Path) -> Iterator[tuple[int | None, dict[str, float]]]:
    """prime-rl's own numbers, as (step, values)."""
    path = Path(path)
    files = (path / "monitors" / "file" / "metrics.jsonl", path / "metrics.jsonl")
    yield from numbers(next((file for file in files if file.is_file()), files[-1]))


# -- files -----------------------------------------------------------------------------


def _traces_dir(path: Path) -> Path:
    below = path / "monitors" / "file" / "traces"
    return below if below.is_dir() else path


def _sources(path: Path) -> list[Path]:
    """The files that hold episodes, in order."""
    if path.is_file():
        return [path]
    rollouts = path / "rollouts" if (path / "rollouts").is_dir() else path
    if found := sorted(rollouts.glob("step_*/*/*/traces.jsonl")):
        return found
    traces = _traces_dir(path)
    return _chunks(traces / "stream") or [f for f in [traces / "traces.jsonl"] if f.is_file()]


def _chunks(stream: Path) -> list[Path]:
    """The pieces of one stream: a file, or numbered chunks of which some are sealed.

    A chunk that is being sealed lies there twice; the plain one is whole.
    """
    single = stream.with_name(stream.name + ".jsonl")
    if single.is_file():
        return [single]
    by_number: dict[str, Path] = {}
    for file in sorted(stream.glob("*.jsonl*"), reverse=True):  # .zst before the plain one
        if file.name.endswith((".jsonl", ".jsonl.zst")):
            by_number[file.name.partition(".")[0]] = file
    return [by_number[number] for number in sorted(by_number)]


def _records(files: Iterable[Path]) -> Iterator[dict[str, Any] | Problem]:
    for file in files:
        yield from records(file)


def _rollouts(record: dict[str, Any] | Problem, file: Path) -> list[Rollout | Problem]:
    """The rollouts of a record; one that is no episode is a problem."""
    if isinstance(record, Problem):
        return [record]
    try:
        return list(convert(record))
    except Exception as error:
        return [Problem(file, None, f"no episode of verifiers: {type(error).__name__}: {error}")]


# -- prime-rl, one directory a step ----------------------------------------------------


def _cohorts(rollouts: Path) -> Iterator[Rollout | Problem]:
    """Episodes that were shipped, from `effective`; the others from `all`.

    An episode that was never shipped was dropped, if a later step was.
    """
    files = [(_step(f), f.parent.parent.name, f) for f in rollouts.glob("step_*/*/*/traces.jsonl")]
    files.sort(key=lambda found: (found[0], found[1], str(found[2])))
    shipped: set[str] = set()
    last = -1
    for step, kind, file in files:
        if file.parent.name == "effective":
            last = max(last, step) if kind == "train" else last
            for rollout in _shipped(file, step, kind):
                if isinstance(rollout, Rollout):
                    shipped.add(rollout.key or "")
                yield rollout
    for step, kind, file in files:
        if file.parent.name == "effective":
            continue
        for rollout in _of_file(file, step, kind):
            if isinstance(rollout, Rollout):
                if rollout.key in shipped:
                    continue
                if kind == "train" and rollout.fate in ("scored", "generated") and step < last:
                    rollout.fate, rollout.fate_reason = "dropped", "not shipped to the trainer"
            yield rollout


def _shipped(file: Path, step: int, kind: str) -> Iterator[Rollout | Problem]:
    for rollout in _of_file(file, step, kind):
        if isinstance(rollout, Rollout) and kind == "train":
            rollout.fate, rollout.trained_step = "trained", step
        yield rollout


def _of_file(file: Path, step: int, kind: str) -> Iterator[Rollout | Problem]:
    for record in records(file):
        for rollout in _rollouts(record, file):
            if isinstance(rollout, Rollout):
                _place(rollout, step, kind)
            yield rollout


def _place(rollout: Rollout, step: int, kind: str) -> None:
    """The directory says when it arrived; the record, if it does, when it was asked for."""
    rollout.step = step if rollout.step is None else rollout.step
    rollout.split = rollout.split or kind


def _step(file: Path) -> int:
    found = _STEP.fullmatch(file.parents[2].name)
    return int(found.group(1)) if found else -1


# -- prime-rl, one stream and annotations ----------------------------------------------


def _updates(traces: Path) -> dict[str, list[dict[str, Any]]]:
    """What was learned about each trace later, by its id, in the order it was written."""
    producers = sorted(
        {
            file.name.removesuffix(".jsonl") if file.is_file() else file.name
            for file in (traces / "annotations").glob("*")
            if not file.name.endswith(".index.jsonl")
        }
    )
    updates: dict[str, list[dict[str, Any]]] = {}
    for producer in producers:
        for update in _records(_chunks(traces / "annotations" / producer)):
            if isinstance(update, dict):
                updates.setdefault(str(update.get("trace_id")), []).append(update)
    return updates


def _fold(trace: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Lay an update over a trace: `info` is merged, streams go to the nodes of their branch.

    A stream runs over all tokens of a branch, from its root; null is not known. A node that it
    does not reach, or about which it says nothing, keeps what it has.
    """
    trace["info"] = _merged(trace.get("info") or {}, update.get("info") or {})
    nodes = trace.get("nodes") or []
    paths = _paths(nodes)
    for branch in update.get("branches") or ():
        index = branch.get("index")
        if not isinstance(index, int) or not 0 <= index < len(paths):
            continue
        for field in _STREAMS:
            at = 0
            for node in (nodes[n] for n in paths[index]) if branch.get(field) else ():
                length = len(node.get("token_ids") or ())
                piece, at = branch[field][at : at + length], at + length
                if len(piece) < length:
                    break
                mask = node.get("mask") or [False] * length
                values = [v for v, sampled in zip(piece, mask, strict=True) if sampled]
                if any(v is not None for v in values):
                    node[field] = values


def _paths(nodes: list[dict[str, Any]]) -> list[list[int]]:
    """The nodes from root to leaf, for each leaf in order."""
    parents = {node.get("parent") for node in nodes}
    paths = []
    for leaf in (i for i in range(len(nodes)) if i not in parents):
        path: list[int] = []
        at: Any = leaf
        while isinstance(at, int) and 0 <= at < len(nodes) and at not in path:
            path.append(at)
            at = nodes[at].get("parent")
        paths.append(path[::-1])
    return paths


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
