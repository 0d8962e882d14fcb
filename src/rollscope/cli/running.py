"""`demo`, `view`, `serve` and `bundle`: look at rollouts in the browser."""

from __future__ import annotations

import argparse

from .exporting import add_redact, redactor
from .opening import (
    add_query,
    following,
    how_to_record,
    is_url,
    may_write,
    mirror,
    opened,
    root,
    text,
)
from .output import Failed, counted, progress, say, whole_number


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "demo":
        command.add_argument("--seed", type=whole_number(0), default=0)
        command.add_argument("--no-view", action="store_true", help="only make the data")
        command.add_argument("--no-browser", action="store_true", help="do not open a browser")
    if name == "bundle":
        add_query(command)
        command.add_argument("--out", required=True, help="folder to make, e.g. site/")
        add_redact(command)
        return
    command.add_argument(
        "--port", type=whole_number(0, 65535), help="port (default: 7373, or any free one)"
    )
    command.add_argument("--no-scan", action="store_true", help="no checks look at new rollouts")
    if name == "view":
        add_query(command)
        command.add_argument("--no-browser", action="store_true", help="do not open a browser")
    if name == "serve":
        command.add_argument(
            "store", nargs="?", help="the store: a folder, or s3://, gs://, az:// (or --dir)"
        )
        command.add_argument(
            "--host",
            default="127.0.0.1",
            help="where to listen (default: loopback); elsewhere needs a token",
        )
        command.add_argument(
            "--name", action="append", default=[], help="host name of a proxy in front"
        )
        command.add_argument("--allow-labels", action="store_true", help="let readers write labels")


def demo(args: argparse.Namespace) -> int:
    from .. import demo as small_run

    may_write(root(args))
    try:
        small_run.run(dir=root(args), seed=args.seed, progress=say)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise Failed(str(error), 2) from None
    _look(args)
    if args.no_view:
        return 0
    args.query = ["project:demo"]
    return view(args)


def _look(args: argparse.Namespace) -> None:
    """Checks look at the demo, as they would at any run."""
    from ..checks import scan

    with opened(args) as store, progress("looking", None) as update:
        report = scan(store, "project:demo", progress=update)
    say(
        f"checks found {counted(report.findings, 'thing')} in {counted(report.rollouts, 'rollout')}"
    )


def view(args: argparse.Namespace) -> int:
    from ..server import serve as run_server

    local = not (args.dir and is_url(args.dir))
    with opened(args) as store:
        if local and not store.runs():
            say(how_to_record(args))
        run_server(
            store,
            port=args.port,
            open_browser=not args.no_browser,
            query=text(args),
            allow_labels=None if local else False,
            tend=local,
            scan=not args.no_scan,
        )
    return 0


def serve(args: argparse.Namespace) -> int:
    from ..server import serve as run_server

    args.dir = args.store or args.dir
    remote = mirror(args)
    if remote is not None and args.allow_labels:
        raise Failed("labels cannot be written to a remote store: serve the folder itself", 2)
    with opened(args) as store, following(args):
        run_server(
            store,
            host=args.host,
            port=args.port,
            hosts=args.name,
            allow_labels=(args.allow_labels or None) if remote is None else False,
            tend=remote is None,
            scan=not args.no_scan,
        )
    return 0


def bundle(args: argparse.Namespace) -> int:
    from ..server import bundle as make

    _, clean = redactor(args)
    with opened(args) as store, progress("bundling", None) as update:
        try:
            count = make(store, text(args), args.out, redact=clean, progress=update)
        except (ValueError, FileNotFoundError) as error:
            raise Failed(str(error), 2) from None
    say(f"{counted(count, 'rollout')} in {args.out}: put it on any web server, or look at it with")
    say(f"  python -m http.server --directory {args.out}")
    return 0
