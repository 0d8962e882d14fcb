"""`import`: rollouts that other programs wrote."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .opening import root
from .output import Failed, json_line, progress, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..capture import Run
    from ..formats import Problem
    from ..model import Rollout

SHOWN_PROBLEMS = 20
PATIENCE = 120.0
"""Seconds without a newly sealed log after which sealing is left to others."""
MB = 10**6
QUEUED = 32 * MB
"""Bytes on their way to the disk after which an import waits."""


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("what", nargs="+", metavar="[FORMAT] PATH", help="file or folder")
    command.add_argument("--project", default="imported", help="project (default: imported)")
    command.add_argument("--run", help="run (default: name of the file or folder)")
    command.add_argument(
        "--map", default="", help="which field comes from where: field=path terms (docs/formats.md)"
    )
    command.add_argument("--strict", action="store_true", help="stop at the first bad line")


def import_(args: argparse.Namespace) -> int:
    from .. import capture, formats

    name, path = _named(args.what)
    if not path.exists():
        raise Failed(f"no such file or folder: {path}", 2)
    try:
        found = formats.read(path, name, args.map)
    except ValueError as error:
        raise Failed(str(error), 2) from None
    folder = root(args)
    with (
        _as_typed(path),
        capture.init(project=args.project, run=args.run or path.stem, dir=folder) as run,
    ):
        try:
            if not args.map:  # first: a store that is read before it grows takes little memory
                _take_metrics(run, formats.read_metrics(path, name))
            done, bad = _import(run, path, found, args.strict)
        except KeyboardInterrupt:
            say("interrupted. Everything read so far is kept; the same command goes on.")
            raise
    _sealed(run)
    lost = sum(run.counters.dropped.values())
    if bad > SHOWN_PROBLEMS:
        say(f"... and {bad - SHOWN_PROBLEMS:,} more problems")
    if lost:
        why = ", ".join(f"{count:,} {reason}" for reason, count in run.counters.dropped.items())
        say(f"{lost:,} rollouts could not be written ({why}); solve that and import again")
    if args.json:
        json_line(
            {"project": run.project, "run": run.name, "imported": done - lost, "problems": bad}
        )
    else:
        say(f"imported {done - lost:,} rollouts into {run.project}/{run.name}; {bad:,} problems")
    return 1 if lost or (bad and not done) else 0


@contextmanager
def _as_typed(path: Path) -> Iterator[None]:
    """Rollscope's variables are for trainers. An import does what was typed, whatever they say."""
    before = {name: value for name, value in os.environ.items() if name.startswith("ROLLSCOPE")}
    for name in before:
        del os.environ[name]
    os.environ |= {"ROLLSCOPE_QUIET": "1", "ROLLSCOPE_LAUNCH": _launch(path)}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("ROLLSCOPE")]:
            del os.environ[name]
        os.environ |= before


def _import(
    run: Run, path: Path, found: Iterator[Rollout | Problem], is_strict: bool
) -> tuple[int, int]:
    """Log everything that is found, except what an interrupted import has logged already.

    Never more than `QUEUED` bytes wait for the disk, whatever the file holds.
    """
    known, seen = _known(run), _Seen()
    done = bad = 0
    begin, total = _bytes_read(), _size(path)
    with progress(f"importing {path.name} (MB)", total // MB) as update:
        for item in found:
            if isinstance(item, tuple):
                bad += 1
                if is_strict:
                    raise Failed(f"{item} ({done:,} imported before it)")
                if bad <= SHOWN_PROBLEMS:
                    say(str(item))
                continue
            item.key = seen.unique(item.key or item.id) or f"{done + bad}"
            item.id = run.id_of(item.key)
            done += 1
            if item.id not in known:
                run.log(item)
            if done % 64 == 0:
                update(min(_bytes_read() - begin, total) // MB)
            if done % 64 == 0 or run.queued > QUEUED:
                _wait(run)
        _wait(run)
    return done, bad


def _wait(run: Run) -> None:
    while not run.flush():
        say("the disk is slow; waiting for it")


def _sealed(run: Run) -> None:
    """Wait until a large import is sealed: a reader holds unsealed logs in memory."""
    logs, own = run.directory / "live", f"{run.writer}-*"
    total = left = len(list(logs.glob(own)))
    if total <= 1:
        return
    since = time.monotonic()
    with progress("sealing", total) as update:
        while now := len(list(logs.glob(own))):
            if now < left:
                left, since = now, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                say(f"{left} logs are not sealed yet; `rollscope compact` does it")
                return
            update(total - left)
            time.sleep(0.1)


class _Seen:
    """Names that a file gave to its rollouts. Two rollouts with one name are not copies."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def unique(self, name: str | None) -> str | None:
        if name is None:
            return None
        short = hash(name)  # eight bytes a name, however long names are
        count = self._counts[short] = self._counts.get(short, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _bytes_read() -> int:
    """Bytes that this process has read so far, by any reader; 0 if the system does not count."""
    try:
        counts = Path("/proc/self/io").read_text()
    except OSError:
        return 0
    return int(counts.partition("rchar: ")[2].split()[0])


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _known(run: Run) -> set[str]:
    """Ids that the run already has."""
    from ..query import Store

    store = Store(run.directory.parent.parent)
    found = store.sql(
        "SELECT id FROM rollouts WHERE project = ? AND run = ?", (run.project, run.name)
    ).fetchall()
    store.close()
    return {row[0] for row in found}


def _take_metrics(run: Run, found: Iterator[tuple[int | None, dict[str, float]]]) -> None:
    """Log the metrics that the run does not have yet, at their steps."""
    from ..query import Store

    store = Store(run.directory.parent.parent)
    rows = store.sql(
        "SELECT step, name FROM metrics WHERE project = ? AND run = ?", (run.project, run.name)
    ).fetchall()
    store.close()
    known = set(rows)
    for step, values in found:
        fresh = {name: v for name, v in values.items() if (step, name) not in known}
        if fresh:
            run.metrics(step, fresh)


def _launch(path: Path) -> str:
    """An unchanged file is the same launch, so an import can be repeated or go on."""
    about = path.stat()
    text = f"{path.absolute()} {about.st_size} {about.st_mtime_ns}"
    return "import-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _named(what: list[str]) -> tuple[str | None, Path]:
    if len(what) == 1:
        return None, Path(what[0])
    if len(what) == 2:
        return what[0], Path(what[1])
    raise Failed("expected: rollscope import [FORMAT] PATH", 2)
