"""`scan` and `findings`: let checks look, and see what they found."""

from __future__ import annotations

import argparse
import os

from rich.text import Text

from . import render
from .opening import add_query, opened, root, text
from .output import Column, Failed, console, json_line, progress, say, table, whole_number

COUNTS = (
    Column("check", width=28),
    Column("found", width=9),
    Column("clear", width=9),
    Column("unobserved", width=10),
    Column("unlooked", "not looked at", width=13),
)


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    add_query(command)
    if name == "scan":
        command.add_argument(
            "--processes",
            type=whole_number(1),
            default=min(4, os.cpu_count() or 1),
            help="how many look at once (default: one a core, at most 4)",
        )
    else:
        command.add_argument("--check", metavar="ID", help="list the findings of this check")
        command.add_argument(
            "--limit", type=whole_number(0), default=20, help="at most so many (default: 20)"
        )


def scan(args: argparse.Namespace) -> int:
    """Exit code 1 if a check broke, or a run could not be scanned."""
    from ..checks import SettingsError
    from ..checks import scan as look

    root(args)  # it writes, so it refuses an address
    with opened(args) as store, progress("looking", None) as update:
        try:
            report = look(store, text(args), processes=args.processes, progress=update)
        except SettingsError as error:
            raise Failed(str(error), 2) from None
    if args.json:
        json_line(report)
    else:
        looked = f"looked at {report.rollouts:,} rollouts and {report.groups:,} groups"
        idle = not (report.rollouts or report.groups or report.skipped)
        say("nothing new to look at" if idle else f"{looked}: {report.findings:,} findings")
        for run, why in report.skipped.items():
            say(f"  {run} was left alone: {why}")
        for id, broken in report.broken.items():
            say(f"  the check {id} is broken: {broken.error} ({broken.count:,} times, e.g. with "
                f"{broken.rollout}); the others went on")  # fmt: skip
        say("rollscope findings shows what they say; rollscope view shows where")
    return int(bool(report.broken or report.skipped))


def findings(args: argparse.Namespace) -> int:
    """Exit code 1 if a check was asked about that found nothing."""
    from ..checks import SettingsError
    from ..checks.counts import counts

    with opened(args) as store:
        if args.check:
            return _of_check(args, store)
        try:
            found = counts(store, text(args))
        except SettingsError as error:
            raise Failed(str(error), 2) from None
    if args.json:
        for count in found:
            json_line(count)
        return 0
    shown = [count for count in found if count.found or count.unlooked or args.query]
    table(found, COUNTS)
    if any(count.unlooked for count in shown):
        say("rollscope scan looks at the rest")
    return 0


def _of_check(args: argparse.Namespace, store: object) -> int:
    from ..checks.registry import known
    from ..query import Store

    assert isinstance(store, Store)
    found, out, number = store.findings(text(args)).of(args.check), console(), 0
    for number, finding in enumerate(found, 1):
        if args.json:
            json_line(finding)
            continue
        if number > args.limit:
            out.print(Text("more: --limit, or rollscope ls flag:" + args.check, style="dim"))
            break
        line = Text(f"{finding.rollout}  ", style="bold")
        where = [] if finding.step is None else [f"step {finding.step}"]
        where += [] if finding.message is None else [f"message {finding.message}"]
        line.append(f"{', '.join(where)}  ", style="dim").append(render.safe(finding.text), "")
        out.print(line)
    if not number:
        if args.check not in known() and args.check not in store.reader.found.checks:
            raise Failed(f"there is no check {args.check!r}; rollscope findings lists them", 2)
        say(f"{args.check} found nothing here")
    return int(not number)
