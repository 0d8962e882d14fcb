"""`import`: rollouts that other programs wrote."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .opening import may_write, root
from .output import Failed, console, counted, json_line, progress, say

if TYPE_CHECKING:
    from ..formats import Problem, Skipped, Source
    from ..model import Rollout
    from .intake import Intake

SHOWN_PROBLEMS = 20
SHOWN_FILES = 10
SHOWN_ROLLOUTS = 3
"""Of a dry run."""
MB = 10**6


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    from ..formats import READERS

    formats = [
        textwrap.fill(f"{name:14} {known.help}", 78, initial_indent="  ") + "\n"
        for name, known in READERS.items()
    ]
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "Formats, told apart by content (rollscope docs formats):\n" + "".join(formats)
    command.add_argument(
        "what", nargs="+", metavar="PATH", help="files or folders; a FORMAT may stand before them"
    )
    command.add_argument("--project", default="imported", help="project (default: imported)")
    command.add_argument("--run", help="run (default: named after the file or folder)")
    command.add_argument(
        "--map",
        default="",
        help="which field comes from where: field=path terms (rollscope docs formats)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="show the first rollouts; write nothing"
    )
    command.add_argument("--strict", action="store_true", help="stop at the first bad line")


def import_(args: argparse.Namespace) -> int:
    from ..capture.settings import aside
    from ..store.writers import IMPORT

    name, paths = _named(args.what)
    for path in paths:
        if not path.exists():
            raise Failed(f"no such file or folder: {path}", 2)
    if args.map:
        _check_mapping(paths, name, args.map)
    store, codes = root(args), []
    # These variables are for trainers. An import does what was typed, whatever they say.
    with aside(ROLLSCOPE_QUIET="1", ROLLSCOPE_LAUNCH=IMPORT):
        for path in paths:
            try:
                codes.append(_import(args, store, name, path))
            except Failed as error:
                if args.strict or len(paths) == 1:
                    raise
                say(str(error))
                codes.append(error.code)
    return max(codes)


def _named(what: list[str]) -> tuple[str | None, list[Path]]:
    """The format, if one was named, and the paths."""
    from ..formats import READERS, UnknownFormat, reader

    first, *others = what
    if not others and first in READERS and not Path(first).exists():
        raise Failed(f"{first} is a format; say what to read: rollscope import {first} PATH", 2)
    if others and first not in READERS and not Path(first).exists():
        try:
            reader(first)
        except UnknownFormat as error:
            raise Failed(f"there is no file {first!r}, and {error}", 2) from None
    if others and first in READERS:
        return first, [Path(path) for path in others]
    return None, [Path(path) for path in what]


def _check_mapping(paths: list[Path], name: str | None, mapping: str) -> None:
    """A term that finds nothing is a mistake: it is told before anything is written."""
    from ..formats import Source, check_mapping, find

    if name not in (None, "columns"):
        raise Failed(f"only the format columns takes a mapping, not {name!r}", 2)
    found = [item for path in paths for item in find(path, is_mapped=True)]
    try:
        check_mapping([item.path for item in found if isinstance(item, Source)], mapping)
    except ValueError as error:
        raise Failed(str(error), 2) from None


class _Told:
    """What is said about one path while it is imported, and at the end."""

    def __init__(self) -> None:
        self.problems = 0
        self.formats: Counter[str] = Counter()
        self.skipped: list[Skipped] = []

    def problem(self, problem: Problem) -> None:
        self.problems += 1
        if self.problems <= SHOWN_PROBLEMS:
            say(str(problem))

    def end(self) -> None:
        if self.problems > SHOWN_PROBLEMS:
            say(f"... and {counted(self.problems - SHOWN_PROBLEMS, 'more problem')}")
        skipped = [item for item in self.skipped if item.path != item.root]  # else: see `_nothing`
        for item in skipped[:SHOWN_FILES]:
            say(f"skipped {item.name}: {item.why}")
        if more := skipped[SHOWN_FILES:]:
            endings = Counter(item.path.suffix or item.path.name for item in more)
            kinds = ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(5))
            say(f"skipped {counted(len(more), 'more file')}: {kinds}")

    @property
    def kinds(self) -> str:
        if len(self.formats) == 1:
            return f" ({next(iter(self.formats))})"
        return f" ({', '.join(f'{n:,} {name}' for name, n in self.formats.most_common())})"


class _Item(NamedTuple):
    """A rollout, and what it comes from."""

    rollout: Rollout
    source: Source


def _import(args: argparse.Namespace, store: Path, name: str | None, path: Path) -> int:
    from ..store import paths
    from .intake import Intake, run_name

    told = _Told()
    intake = Intake(store, args.project, args.run or run_name(store, args.project, path), path)
    if args.dry_run:
        return _shown(args, name, intake)
    may_write(paths.run_dir(store, args.project, intake.name))
    is_crash = True
    try:
        _take(args, intake, path, _found(args, name, path, told))
        is_crash = False
    except KeyboardInterrupt:
        say("interrupted. Everything read so far is kept; the same command goes on.")
        raise
    finally:
        intake.finish(is_crash=is_crash)
    intake.sealed()
    told.end()
    return _said(args, intake, path, told)


def _found(args: argparse.Namespace, name: str | None, path: Path, told: _Told) -> Iterator[_Item]:
    """Every rollout; what is no rollout is told."""
    from ..formats import Skipped, find
    from ..model import Rollout

    for source in find(path, name, is_mapped=bool(args.map)):
        if isinstance(source, Skipped):
            told.skipped.append(source)
            continue
        count = told.problems
        before = sum(told.formats.values())
        for item in source.read(args.map):
            if isinstance(item, Rollout):
                told.formats[source.format] += 1
                yield _Item(item, source)
                continue
            told.problem(item)
            if args.strict:
                raise Failed(f"{item} ({sum(told.formats.values()):,} imported before it)")
        if sum(told.formats.values()) == before and told.problems == count:
            told.skipped.append(Skipped(source.path, f"no rollouts in it ({source.format})", path))


def _take(args: argparse.Namespace, intake: Intake, path: Path, found: Iterator[_Item]) -> None:
    begin, total = _bytes_read(), _size(path)
    last: Source | None = None
    with progress(f"importing {path.name} (MB)", total // MB) as update:
        for rollout, source in found:
            if source != last and not args.map:
                for step, values in source.metrics():
                    intake.metrics(step, values)
            last = source
            intake.take(rollout, source.path)
            if (intake.new + intake.already) % 64 == 0:
                update(min(_bytes_read() - begin, total) // MB)
        intake.wait()


def _said(args: argparse.Namespace, intake: Intake, path: Path, told: _Told) -> int:
    """The last words, and the exit code."""
    lost = sum(intake.lost.values())
    done = intake.new - lost
    where = f"{intake.project}/{intake.name}"
    if not intake.new + intake.already:
        raise Failed(_nothing(path, told), 1 if path.is_dir() or told.problems else 2)
    if intake.gone:
        say(
            f"{where} keeps {counted(intake.gone, 'rollout')} of an earlier import, no longer in "
            f"{path} or read differently now"
        )
    if lost:
        why = ", ".join(f"{count:,} {reason}" for reason, count in intake.lost.items())
        say(f"{counted(lost, 'rollout')} could not be written ({why}); solve that and import again")
    if args.json:
        json_line(
            {
                "project": intake.project, "run": intake.name, "imported": done,
                "already": intake.already, "problems": told.problems,
                "skipped": len(told.skipped), "formats": told.formats,
            }
        )  # fmt: skip
    elif not intake.new:
        say(f"nothing new: {where} has all {counted(intake.already, 'rollout')} of {path} already")
    else:
        there = f"; {intake.already:,} already there" if intake.already else ""
        say(
            f"imported {counted(done, 'rollout')} into {where}{told.kinds}{there}; "
            f"{counted(told.problems, 'problem')}"
        )
    return 1 if lost else 0


def _nothing(path: Path, told: _Told) -> str:
    """Why nothing was imported, and what to type instead."""
    from ..formats import NO_FORMAT

    nothing = f"nothing was imported from {path}: no rollouts"
    if told.problems:
        return f"{nothing}, {counted(told.problems, 'problem')}"
    unknown = [item for item in told.skipped if item.why == NO_FORMAT]
    map_it = "say which field comes from where (--map, rollscope docs formats)"
    if path.is_dir() or not told.skipped:
        return f"{nothing} in it" + (f". If its files are JSON or tables, {map_it}" * bool(unknown))
    if not unknown:
        return f"{path}: {told.skipped[0].why}".replace(": it is ", " is ")
    return (
        f"{path}: no known format recognises it. Name one (rollscope import FORMAT {path}; "
        f"rollscope import --help lists them), or {map_it}"
    )


def _shown(args: argparse.Namespace, name: str | None, intake: Intake) -> int:
    """The first rollouts as they would be, and what would be left out. Only so much is read."""
    from ..formats import Skipped, find

    told, shown = _Told(), 0
    for source in find(intake.path, name, is_mapped=bool(args.map)):
        if isinstance(source, Skipped):
            told.skipped.append(source)
            continue
        told.formats[source.format] += 1
        for item in source.read(args.map) if shown < SHOWN_ROLLOUTS else ():
            if isinstance(item, tuple):
                told.problem(item)
                continue
            _show(args, intake, source, item)
            shown += 1
            if shown == SHOWN_ROLLOUTS:
                break
    told.end()
    if not shown:
        raise Failed(_nothing(intake.path, told))
    where = f"{intake.project}/{intake.name}"
    say(f"a dry run: nothing was written. Files{told.kinds} would go into {where}")
    return 0


def _show(args: argparse.Namespace, intake: Intake, source: Source, rollout: Rollout) -> None:
    from ..formats import jsonl
    from . import render

    if args.json:
        print(jsonl.encode(rollout).decode())
        return
    rollout.project, rollout.run = intake.project, intake.name
    rollout.id = rollout.id or render.MISSING
    out = console()
    out.print(f"{render.safe(source.name)} ({source.format})", style="bold")
    out.print(render.rollout(rollout))
    out.print()


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
