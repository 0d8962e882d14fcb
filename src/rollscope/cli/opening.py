"""Open the store of a command, and say clearly what is wrong with a query or an id."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .output import Failed, say

if TYPE_CHECKING:
    from ..query import Store
    from ..store.read.mirror import Mirror

QUERY_HELP = 'what to look for, e.g. reward:<0.2 split:eval "exact words" (rollscope docs query)'


def add_query(command: argparse.ArgumentParser) -> None:
    command.add_argument("query", nargs="*", help=QUERY_HELP)


def add_on(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--on",
        choices=("ray",),
        help="let the nodes of a Ray cluster do it (pip install 'rollscope[ray]'): the one of "
        "RAY_ADDRESS, or started here, else this machine alone; all nodes must see the store",
    )


def on_ray(args: argparse.Namespace) -> bool:
    """Is a Ray cluster to do it? Fails if there is no Ray here."""
    if args.on is None:
        return False
    try:
        importlib.import_module("rollscope.store.read.on_ray")
    except ImportError as error:
        raise Failed(f"--on ray: {error}", 2) from None
    return True


def how_to_record(args: argparse.Namespace) -> str:
    """What to say if nothing is recorded yet."""
    from ..adapters import HOW_TO_RECORD

    lines = [f"  {trainer:16}{what}" for trainer, what in HOW_TO_RECORD]
    where = args.dir if args.dir and is_url(args.dir) else home_relative(root(args))
    first = f"Nothing is recorded yet in {where}. To record, type one of these:"
    return "\n".join([first, "", *lines, ""])


def root(args: argparse.Namespace) -> Path:
    from ..store import paths

    if args.dir and is_url(args.dir):
        raise Failed(f"{args.dir}: this command needs a folder; a remote store can only be read", 2)
    return Path(args.dir).expanduser() if args.dir else paths.root()


def may_write(folder: Path) -> None:
    """Fails before anything is done for a folder that takes nothing. Recording itself would go
    on without it, because a training must."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise Failed(f"{there}: writing is not permitted to you", 2)


def mirror(args: argparse.Namespace) -> Mirror | None:
    """The mirror of an address, fetched once; None if a folder was given."""
    if not (args.dir and is_url(args.dir)):
        return None
    if getattr(args, "mirror", None) is None:
        from ..store.read.bucket import BucketError
        from ..store.read.mirror import Mirror

        try:
            args.mirror = Mirror(args.dir)
            fetched = args.mirror.sync()
        except BucketError as error:
            raise Failed(str(error), 2) from None
        if fetched.bytes:
            say(f"fetched {fetched.bytes / 1e6:,.1f} MB of {args.dir} to {args.mirror.folder}")
    found: Mirror = args.mirror
    return found


def following(args: argparse.Namespace) -> AbstractContextManager[None]:
    """While it is open, news at an address is fetched. For a folder it does nothing."""
    remote = mirror(args)
    return nullcontext() if remote is None else remote.following(failed=say)


def is_url(place: str) -> bool:
    return "://" in place


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Store]:
    """The store. A wrong query or id becomes an error message for the person.

    An address is read where it lies, unless the command has made a mirror of it.
    """
    from ..query import NotFound, QueryError
    from ..store.read.bucket import BucketError

    try:
        store = _store(args)
        try:
            yield store
        finally:
            store.close()
    except (QueryError, BucketError) as error:
        raise Failed(str(error), 2) from None
    except NotFound as error:
        raise Failed(str(error)) from None


def _store(args: argparse.Namespace) -> Store:
    from ..query import Store

    mirrored: Mirror | None = getattr(args, "mirror", None)
    if args.dir and is_url(args.dir) and mirrored is None:
        return Store(args.dir)
    folder = root(args) if mirrored is None else mirrored.folder
    if args.dir and not folder.is_dir():
        raise Failed(f"no store at {folder}: there is no such folder", 2)
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise Failed(f"{folder}: reading is not permitted to you", 2)
    return Store(folder)


def text(args: argparse.Namespace) -> str:
    """The query as one text: the shell has split it at spaces."""
    return " ".join(args.query)


def home_relative(path: Path) -> str:
    """`~/...` if that is shorter to read."""
    home = Path.home()
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)
