"""`export`: rollouts for others, as files or into another system."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from .opening import add_query, opened, text
from .output import Failed, json_line, progress, say

if TYPE_CHECKING:
    from ..capture.redact import Redactor
    from ..model import Rollout
    from ..query import Store


class Asked(NamedTuple):
    """What a person typed, and the store that it is about."""

    store: Store
    name: str
    options: str
    """What stands behind `:` in `trackio:space_id=u/s`."""
    query: str
    order: str
    out: str | None
    clean: Redactor | None

    def rollouts(self) -> Iterator[Rollout]:
        """What the query finds, whole, in order and redacted if that was asked for."""
        from ..capture.redact import redact_rollout

        ids = self.store.rollouts(self.query, order=self.order).ids()
        with progress("exporting", len(ids)) as update:
            for number, id in enumerate(ids, 1):
                rollout = self.store.get(id)
                yield rollout if self.clean is None else redact_rollout(rollout, self.clean)
                update(number)


class Done(NamedTuple):
    """What an exporter did."""

    exported: int
    notes: tuple[str, ...] = ()
    """What was left out and why, a line each."""


class Exporter(NamedTuple):
    """One word that can stand behind `rollscope export`."""

    help: str
    run: Callable[[Asked], Done]


def _jsonl(asked: Asked) -> Done:
    from ..formats import jsonl

    with _output(asked.out) as file:
        return Done(jsonl.write(asked.rollouts(), file))


def _atif(asked: Asked) -> Done:
    from ..formats import atif

    with _output(asked.out) as file:
        return Done(atif.write(asked.rollouts(), file))


def _parquet(asked: Asked) -> Done:
    if not asked.out:
        raise Failed("parquet needs --out FOLDER", 2)
    if asked.clean is not None:
        raise Failed("parquet cannot be redacted yet; export jsonl instead", 2)
    selection = asked.store.rollouts(asked.query, order=asked.order)
    return Done(selection.write_parquet(Path(asked.out)))


EXPORTERS = {
    "jsonl": Exporter("one line a rollout, everything in it", _jsonl),
    "atif": Exporter("ATIF trajectories, one a line", _atif),
    "parquet": Exporter("the five tables of the open format", _parquet),
}
"""What can be typed behind `export`. A sink adds itself here: a name, a line, a function."""


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    known = "; ".join(f"{name}: {exporter.help}" for name, exporter in EXPORTERS.items())
    command.add_argument("format", metavar="FORMAT", help=known)
    add_query(command)
    command.add_argument("--out", help="file or folder (default: standard output, for lines)")
    command.add_argument("--order", default="step,group,index")
    command.add_argument(
        "--redact",
        action="append",
        default=[],
        help="clean texts: email, key, phone, ip, or module:function; may be given several times",
    )


def export(args: argparse.Namespace) -> int:
    name, _, options = args.format.partition(":")
    if name not in EXPORTERS:
        raise Failed(f"nothing is exported as {name!r}; known are: {', '.join(EXPORTERS)}", 2)
    with opened(args) as store:
        asked = Asked(store, name, options, text(args), args.order, args.out, _redactor(args))
        done = EXPORTERS[name].run(asked)
    for note in done.notes:
        say(note)
    if args.json and args.out:
        json_line({"exported": done.exported, "out": args.out})
    else:
        say(f"exported {done.exported:,} rollouts" + (f" to {args.out}" if args.out else ""))
    return 0 if done.exported else 1


def _redactor(args: argparse.Namespace) -> Redactor | None:
    from ..capture.redact import make_redactor

    try:
        return make_redactor(args.redact) if args.redact else None
    except ValueError as error:
        raise Failed(str(error), 2) from None


@contextmanager
def _output(name: str | None) -> Iterator[IO[bytes]]:
    if name is None or name == "-":
        yield sys.stdout.buffer
        return
    path = Path(name)
    if not path.parent.is_dir():
        raise Failed(f"no such folder: {path.parent}", 2)
    with path.open("wb") as file:
        yield file
