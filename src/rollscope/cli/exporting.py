"""`export`: rollouts for other programs and systems. `files`: where the tables lie."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..model import grouping
from .opening import add_on, add_query, on_ray, opened, text
from .output import Failed, counted, json_line, progress, say

if TYPE_CHECKING:
    from ..model import Rollout
    from ..model.redact import Redactor
    from ..query import Store

ORDER = "step,group,index"
BY_GROUP = ",".join((*grouping.PLACE, grouping.ORDER, "index"))
"""Siblings stand one after the other, so that they can be compared."""


class ExportRequest(NamedTuple):
    """What a person typed, and the store that it is about."""

    store: Store
    name: str
    options: str
    """What stands behind `:` in `trackio:space_id=u/s`."""
    query: str
    order: str
    out: str | None
    redact: list[str]
    clean: Redactor | None
    again: bool = False
    on_ray: bool = False


class ExportResult(NamedTuple):
    """What an export did."""

    exported: int
    notes: tuple[str, ...] = ()
    """What was left out and why, a line each."""
    what: str = "rollouts"
    before: int = 0
    """Rollouts that were there already."""


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "files":
        from ..model.schema import TABLES

        command.add_argument("table", choices=list(TABLES))
        return
    from ..formats import EXPORTERS
    from ..sinks import KNOWN

    known = [f"{name}: {exporter.help}" for name, exporter in EXPORTERS.items()]
    known.append(
        f"{', '.join(KNOWN)}: another system (rollscope docs sinks); its options follow a colon"
    )
    command.add_argument("format", metavar="FORMAT", help="; ".join(known))
    add_query(command)
    command.add_argument("--out", help="file or folder (default: standard output, for lines)")
    command.add_argument("--order", default=ORDER)
    add_redact(command)
    add_on(command)
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the other system, like those behind the colon; may be repeated",
    )
    command.add_argument(
        "--again", action="store_true", help="also send what the other system already has"
    )


def export(args: argparse.Namespace) -> int:
    from ..formats import EXPORTERS
    from .forwarding import forward

    name, _, options = args.format.partition(":")
    options = ",".join(filter(None, [options, *args.option]))
    redact, clean = redactor(args)
    with opened(args) as store:
        asked = ExportRequest(
            store, name, options, text(args), args.order, args.out, redact, clean, args.again,
            on_ray(args),
        )  # fmt: skip
        if asked.on_ray and name not in EXPORTERS:
            raise Failed(f"--on ray writes files; {name} is another system", 2)
        done = _file(asked) if name in EXPORTERS else forward(asked)
    for note in done.notes:
        say(note)
    if args.json and (args.out or name not in EXPORTERS):
        json_line({"exported": done.exported, "out": args.out, "notes": list(done.notes)})
    else:
        say(f"exported {done.exported:,} {done.what}" + (f" to {args.out}" if args.out else ""))
    return 0 if done.exported or done.before else 1


def files(args: argparse.Namespace) -> int:
    """One file a line; how their rows differ from what the store shows goes to standard error."""
    with opened(args) as store:
        found, differing = store.files(args.table), store.reader.differing()
    if args.json:
        json_line({"files": found, **differing._asdict()})
        return 0 if found else 1
    for file in found:
        print(file)
    for count, what in (
        (differing.logged, "in logs, not in these files: rollscope compact seals finished logs"),
        (differing.unfolded, "older here: rollscope compact folds in what was learned later"),
        (differing.superseded, "made again by a later launch, and still in these files"),
    ):
        if count:
            say(f"{counted(count, 'rollout')} {what}")
    if any(differing):
        say("rollscope export parquet writes files with exactly what the store shows")
    return 0 if found else 1


def add_redact(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--redact",
        action="append",
        default=[],
        metavar="NAMES",
        help="clean these out of every text: emails,keys,phones,ips,module:function,regex=... "
        "(a regex takes the rest of the value; may be given several times)",
    )


def redactor(args: argparse.Namespace) -> tuple[list[str], Redactor | None]:
    from ..model.redact import make_redactor, redact_names

    names = [name for text in args.redact for name in redact_names(text)]
    if args.redact and not names:
        raise Failed("--redact names nothing to clean", 2)
    try:
        return names, make_redactor(names) if names else None
    except (ValueError, ImportError, AttributeError) as error:
        raise Failed(f"--redact: {error}", 2) from None


def _file(asked: ExportRequest) -> ExportResult:
    """A file or folder, or lines to standard output."""
    from ..formats import EXPORTERS, CannotExport, write

    exporter = EXPORTERS[asked.name]
    if asked.options:
        raise Failed(f"{asked.name} takes no options, but got {asked.options!r}", 2)
    if exporter.by_group:
        asked = asked._replace(order=BY_GROUP)
    try:
        if asked.out is None or asked.out == "-":
            written = write(asked.name, _rollouts(asked), sys.stdout.buffer)
            return ExportResult(written.lines, _notes(written.left_out), exporter.unit)
        return _continued(asked, Path(asked.out), exporter.unit)
    except CannotExport as error:
        raise Failed(str(error), 2) from None


def _rollouts(asked: ExportRequest) -> Iterator[Rollout]:
    """What the query finds, whole and in order."""
    from ..model.cleaner import Cleaner
    from ..store.read.outgoing import outgoing

    ids = asked.store.rollouts(asked.query, order=asked.order).ids()
    cleaner = None if asked.clean is None else Cleaner(asked.clean)
    found = outgoing(asked.store.reader, ids, cleaner)
    if asked.on_ray:
        from ..store.read.on_ray import whole

        found = whole(asked.store.reader, ids, cleaner)
    with progress("exporting", len(ids)) as update:
        for number, stored in enumerate(found, 1):
            yield stored.rollout
            update(number)


def _continued(asked: ExportRequest, out: Path, unit: str) -> ExportResult:
    """A file or folder, written from its beginning or from where an earlier try stopped."""
    from ..formats import ExportPlan
    from ..formats import export as write_files

    store = asked.store
    root = str(Path(store.reader.root).absolute())
    plan = ExportPlan(asked.name, root, asked.query, asked.order, tuple(asked.redact))

    def rows() -> Iterable[grouping.Grouped]:
        return store.rollouts(asked.query, order=asked.order, columns=grouping.FIELDS)

    with progress(f"exporting {asked.name}", None) as update:
        try:
            state = write_files(
                store.reader, rows, plan, out, asked.clean, update, on_ray=asked.on_ray
            )
        except KeyboardInterrupt:
            say(f"interrupted. The finished part lies in {out}.partial; the same command goes on.")
            raise
    return ExportResult(state.lines, _notes(state.left_out), unit)


def _notes(left_out: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"left out: {count:,} {why}" for why, count in sorted(left_out.items()))
