"""`export`: rollouts for other programs, as files or sent to another system."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..model import grouping
from .opening import add_query, opened, text
from .output import Failed, json_line, progress, say

if TYPE_CHECKING:
    from ..formats import Cleaner, State, Target
    from ..model import Rollout
    from ..model.redact import Redactor
    from ..query import Store

ORDER = "step,group,index"
BY_GROUP = ",".join((*grouping.PLACE, grouping.ORDER, "index"))
"""Siblings stand one after the other, so that they can be compared."""


class Asked(NamedTuple):
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

    def rollouts(self) -> Iterator[Rollout]:
        """What the query finds, whole, in order and redacted if that was asked for."""
        from ..formats import Cleaner
        from ..query.export import outgoing

        ids = self.store.rollouts(self.query, order=self.order).ids()
        cleaner = None if self.clean is None else Cleaner(self.clean, secrets.token_bytes(16))
        with progress("exporting", len(ids)) as update:
            for number, whole in enumerate(self.store.through(ids), 1):
                yield outgoing(whole, cleaner)
                update(number)


class Done(NamedTuple):
    """What an exporter did."""

    exported: int
    notes: tuple[str, ...] = ()
    """What was left out and why, a line each."""
    what: str = "rollouts"
    before: int = 0
    """Rollouts that were there already."""


class Exporter(NamedTuple):
    """One word that can stand behind `rollscope export`."""

    help: str
    run: Callable[[Asked], Done]


# -- files of lines --------------------------------------------------------------------


def _lines(
    module: str, what: str = "rollouts", order: str | None = None
) -> Callable[[Asked], Done]:
    """An exporter of a format that has `write(rollouts, file)`."""

    def run(asked: Asked) -> Done:
        import importlib

        from ..formats import Lines

        write = importlib.import_module(f"rollscope.formats.{module}").write
        if order is not None:
            asked = asked._replace(order=order)
        if asked.out is None or asked.out == "-":
            written = write(asked.rollouts(), sys.stdout.buffer)
            return Done(written.lines, _notes(written.left_out), what)
        return _done(_written(asked, lambda _: Lines(write)), what)

    return run


# -- folders of Parquet files ----------------------------------------------------------


def _parquet(asked: Asked) -> Done:
    from ..query.parquet import FiveTables

    return _done(_written(asked, lambda cleaner: FiveTables(asked.store.engine, cleaner)))


def _scout(asked: Asked) -> Done:
    from ..formats import Tables, scout

    return _done(_written(asked, lambda _: Tables(scout.COLUMNS, scout.row)))


def _hf(asked: Asked) -> Done:
    from ..formats import Tables, hf

    about = f"Query: `{asked.query}`." if asked.query else ""
    if asked.redact:
        about += f" Redacted: {', '.join(asked.redact)}."

    def target(cleaner: Cleaner | None) -> Target:
        said = about if cleaner is None else cleaner.text(about)
        return Tables(hf.COLUMNS, hf.row, lambda folder, state: hf.card(folder, state, said))

    return _done(_written(asked, target))


EXPORTERS = {
    "jsonl": Exporter("one line a rollout, everything in it", _lines("jsonl")),
    "sft": Exporter("one line a conversation, for fine-tuning", _lines("sft", "conversations")),
    "pairs": Exporter(
        "the best and the worst of each group, for preference training",
        _lines("pairs", "pairs", BY_GROUP),
    ),
    "atif": Exporter("ATIF trajectories, one a line", _lines("atif")),
    "parquet": Exporter("the five tables of the open format", _parquet),
    "hf": Exporter("a Hugging Face dataset directory", _hf),
    "scout": Exporter("transcripts for Inspect Scout", _scout),
}
"""What can be typed behind `export`, beside the sinks."""


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    from ..sinks import KNOWN

    known = [f"{name}: {exporter.help}" for name, exporter in EXPORTERS.items()]
    known.append(f"{', '.join(KNOWN)}: another system (docs/sinks.md); its options follow a colon")
    command.add_argument("format", metavar="FORMAT", help="; ".join(known))
    add_query(command)
    command.add_argument("--out", help="file or folder (default: standard output, for lines)")
    command.add_argument("--order", default=ORDER)
    command.add_argument(
        "--redact",
        action="append",
        default=[],
        metavar="NAMES",
        help="clean these out of every text: emails,keys,phones,ips,module:function,regex=... "
        "(a regex takes the rest of the value; may be given several times)",
    )
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
    from .forwarding import forward

    name, _, options = args.format.partition(":")
    options = ",".join(filter(None, [options, *args.option]))
    exporter = EXPORTERS.get(name) or Exporter("another system", forward)
    redact, clean = redactor(args)
    with opened(args) as store:
        asked = Asked(
            store, name, options, text(args), args.order, args.out, redact, clean, args.again
        )
        done = exporter.run(asked)
    for note in done.notes:
        say(note)
    if args.json and (args.out or name not in EXPORTERS):
        json_line({"exported": done.exported, "out": args.out, "notes": list(done.notes)})
    else:
        say(f"exported {done.exported:,} {done.what}" + (f" to {args.out}" if args.out else ""))
    return 0 if done.exported or done.before else 1


def redactor(args: argparse.Namespace) -> tuple[list[str], Redactor | None]:
    from ..model.redact import make_redactor, redact_names

    names = [name for text in args.redact for name in redact_names(text)]
    if args.redact and not names:
        raise Failed("--redact names nothing to clean", 2)
    try:
        return names, make_redactor(names) if names else None
    except (ValueError, ImportError, AttributeError) as error:
        raise Failed(f"--redact: {error}", 2) from None


def _written(asked: Asked, target: Callable[[Cleaner | None], Target]) -> State:
    """A file or folder, written from its beginning or from where an earlier try stopped."""
    from ..formats import CannotExport, Plan
    from ..query.export import export

    if asked.options:
        raise Failed(f"{asked.name} takes no options, but got {asked.options!r}", 2)
    if not asked.out or asked.out == "-":
        raise Failed(f"{asked.name} writes a folder of files: say which one with --out FOLDER", 2)
    store = str(Path(asked.store.reader.root).absolute())
    plan = Plan(asked.name, store, asked.query, asked.order, tuple(asked.redact))
    out = Path(asked.out)
    with progress(f"exporting {asked.name}", None) as update:
        try:
            return export(asked.store, plan, out, target, asked.clean, update)
        except CannotExport as error:
            raise Failed(str(error), 2) from None
        except KeyboardInterrupt:
            say(f"interrupted. The finished part lies in {out}.partial; the same command goes on.")
            raise


def _done(state: State, what: str = "rollouts") -> Done:
    return Done(state.lines, _notes(state.left_out), what)


def _notes(left_out: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"left out: {count:,} {why}" for why, count in sorted(left_out.items()))
