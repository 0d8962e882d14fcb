"""`import`: rollouts that others wrote."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .opening import root
from .output import Failed, json_line, progress, say

if TYPE_CHECKING:
    from ..capture import Run

SHOWN_PROBLEMS = 20


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("what", nargs="+", metavar="[FORMAT] PATH", help="file or folder")
    command.add_argument("--project", default="imported", help="project (default: imported)")
    command.add_argument("--run", help="run (default: name of the file or folder)")
    command.add_argument("--map", default="", help="field=path terms (docs/formats.md)")
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
    done = bad = 0
    folder = root(args)
    for variable in [name for name in os.environ if name.startswith("ROLLSCOPE")]:
        del os.environ[variable]  # they are for trainers: an import does what was typed
    os.environ |= {"ROLLSCOPE_QUIET": "1", "ROLLSCOPE_LAUNCH": _launch(path)}
    run = capture.init(project=args.project, run=args.run or path.stem, dir=folder)
    known = _known(run)
    with run, progress(f"importing {path.name}", None) as update:
        for item in found:
            if isinstance(item, formats.Problem):
                bad += 1
                if args.strict:
                    raise Failed(f"{item} ({done:,} imported before it)")
                if bad <= SHOWN_PROBLEMS:
                    say(str(item))
                continue
            item.key = item.key or item.id or f"{done + bad}"
            item.id = run.id_of(item.key)
            done += 1
            if item.id in known:  # an import that was interrupted goes on
                continue
            run.log(item)
            if done % 64 == 0:
                run.flush()
                update(done)
        if not args.map:
            _take_metrics(run, formats.read_metrics(path, name))
    if bad > SHOWN_PROBLEMS:
        say(f"... and {bad - SHOWN_PROBLEMS:,} more problems")
    summary = {"project": run.project, "run": run.name, "imported": done, "problems": bad}
    if args.json:
        json_line(summary)
    else:
        say(f"imported {done:,} rollouts into {run.project}/{run.name}; {bad:,} problems")
    return 1 if bad and not done else 0


def _known(run: Run) -> set[str]:
    """Ids that the run has already."""
    from ..query import Store

    store = Store(run.directory.parent.parent)
    found = store.sql(
        "SELECT id FROM rollouts WHERE project = ? AND run = ?", (run.project, run.name)
    ).fetchall()
    store.close()
    return {row[0] for row in found}


def _take_metrics(run: Run, found: Iterator[tuple[int | None, dict[str, float]]]) -> None:
    """Numbers that the run does not have yet, at their step."""
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
    """A file that did not change is the same launch, so an import can be repeated or go on."""
    about = path.stat()
    text = f"{path.absolute()} {about.st_size} {about.st_mtime_ns}"
    return "import-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _named(what: list[str]) -> tuple[str | None, Path]:
    if len(what) == 1:
        return None, Path(what[0])
    if len(what) == 2:
        return what[0], Path(what[1])
    raise Failed("expected: rollscope import [FORMAT] PATH", 2)
