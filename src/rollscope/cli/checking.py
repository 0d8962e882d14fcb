"""`scan`, `findings` and `watch`: let checks look, and see what they found."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rich.text import Text

from . import render
from .opening import add_on, add_query, following, mirror, on_ray, opened, root, text
from .output import Column, Failed, console, counted, json_line, progress, say, table, whole_number

if TYPE_CHECKING:
    from pathlib import Path

    from ..checks import Settings
    from ..checks.watching import Watch
    from ..model import Finding
    from ..query import Store
    from ..query.runs import RunSummary

COUNTS = (
    Column("check", width=28),
    Column("found", width=9),
    Column("clear", width=9),
    Column("unobserved", width=10),
    Column("unlooked", "not looked at", width=13),
)


ALARMED = 3
"""Exit code of `watch --fail-on`: no other failure has it, so a script may stop a training by it.
"""


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "watch":
        command.add_argument(
            "run", metavar="RUN", help="the run, or PROJECT/RUN; it may come later"
        )
        command.add_argument(
            "--fail-on",
            action="append",
            default=[],
            metavar="ID",
            help=f"end with exit code {ALARMED} at an alarm of this check (again for more of them)",
        )
        command.add_argument("--once", action="store_true", help="tell what there is, and stop")
        return
    add_query(command)
    if name == "scan":
        add_on(command)
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
    is_on_ray = on_ray(args)
    with opened(args) as store, progress("looking", None) as update:
        try:
            report = look(
                store, text(args), processes=args.processes, progress=update, on_ray=is_on_ray
            )
        except SettingsError as error:
            raise Failed(str(error), 2) from None
    if args.json:
        json_line(report)
    else:
        groups = counted(report.groups, "group")
        looked = f"looked at {counted(report.rollouts, 'rollout')} and {groups}"
        idle = not (report.rollouts or report.groups or report.skipped)
        say(
            "nothing new to look at" if idle else f"{looked}: {counted(report.findings, 'finding')}"
        )
        for run, why in report.skipped.items():
            say(f"  {run} was left alone: {why}")
        for id, broken in report.broken.items():
            times = f"{counted(broken.count, 'time')}, e.g. with {broken.rollout}"
            say(f"  the check {id} is broken: {broken.error} ({times}); the others went on")
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


def _of_check(args: argparse.Namespace, store: Store) -> int:
    from ..checks.registry import known

    found, out, number = store.findings(text(args)).of(args.check), console(), 0
    for number, finding in enumerate(found, 1):
        if args.json:
            json_line(finding)
            continue
        if number > args.limit:
            out.print(Text("more: --limit, or rollscope ls flag:" + args.check, style="dim"))
            break
        line = Text(f"{finding.rollout or finding.run}  ", style="bold")
        where = [] if finding.step is None else [f"step {finding.step}"]
        where += [] if finding.message is None else [f"message {finding.message}"]
        line.append(f"{', '.join(where)}  ", style="dim").append(render.safe(finding.text), "")
        out.print(line)
        if finding.query:
            out.print(Text(f"  {_opens(finding)}", style="dim"))
    if not number:
        if args.check not in known() and args.check not in store.reader.found.checks:
            raise Failed(f"there is no check {args.check!r}; rollscope findings lists them", 2)
        say(f"{args.check} found nothing here")
    return int(not number)


def _opens(finding: Finding) -> str:
    """The command that lists the rollouts of an alarm."""
    return render.safe(f"rollscope ls {shlex.quote(finding.query or '')}")


# -- watch ---------------------------------------------------------------------------------


def watch(args: argparse.Namespace) -> int:
    """Exit code 0 when the run is over, `ALARMED` at an alarm of `--fail-on`."""
    from ..checks import Settings, SettingsError
    from ..checks.settings import FILE
    from ..checks.watching import EVERY, Watch

    mirror(args)  # alarms look at all that is new, so all of it comes here
    with opened(args) as store, following(args):
        folder = store.reader.root
        try:
            settings = Settings(folder / FILE)
        except SettingsError as error:
            raise Failed(str(error), 2) from None
        run = _run(store, args)
        _known(args.fail_on, settings, run.project)
        made = Watch(store, (run.project, run.run), settings)
        with _looking(args, run, folder) as is_looking:
            if not is_looking:
                say(f"{folder} cannot be written: alarms that need tokens come from earlier scans")
            while True:
                if _tell(made.look(_tell_broken), args):
                    return ALARMED
                if args.once or made.is_over:
                    break
                time.sleep(EVERY)
        # What the process beside us has left is looked at now.
        if is_looking and _rest(store, made, args):
            return ALARMED
    say(f"{run.project}/{run.run} {'is over' if made.is_over else 'goes on'}: "
        f"{len(made.told):,} alarms")  # fmt: skip
    return 0


def _looking(
    args: argparse.Namespace, run: RunSummary, folder: Path
) -> AbstractContextManager[bool]:
    """While it is open, a process beside this one lets checks look at the run's rollouts: some
    alarms are made of what they note. Is there one?"""
    from ..checks.beside import beside

    if mirror(args) is not None or not os.access(folder, os.W_OK):
        return nullcontext(False)
    return nullcontext(True) if args.once else beside(folder, _query(run))


def _query(run: RunSummary) -> str:
    from ..query.overview import exactly

    return f"{exactly('project', run.project)} {exactly('run', run.run)}"


def _run(store: Store, args: argparse.Namespace) -> RunSummary:
    """The run to watch, as soon as it is there."""
    from ..checks.watching import EVERY

    is_told = False
    while True:
        runs = store.runs()
        found = [run for run in runs if args.run in (run.run, f"{run.project}/{run.run}")]
        if len(found) > 1:
            names = ", ".join(sorted(f"{run.project}/{run.run}" for run in found))
            raise Failed(f"which {args.run!r}? There are {names}", 2)
        if found:
            return found[0]
        if args.once:
            raise Failed(f"no run {args.run!r}; rollscope ls lists them")
        if not is_told:
            known = ", ".join(f"{run.project}/{run.run}" for run in runs[-3:]) or "none"
            say(f"waiting for a run {args.run!r} (there are: {known})")
            is_told = True
        time.sleep(EVERY)


def _known(ids: list[str], settings: Settings, project: str) -> None:
    """Can each of these checks raise an alarm?"""
    alarming = sorted(b.check.id for b in settings.bound(project) if b.check.subject == "step")
    for id in ids:
        if id not in alarming:
            what = f"{id!r} raises no alarm here; these do: {', '.join(alarming)}"
            raise Failed(f"--fail-on: {what}", 2)


def _rest(store: Store, made: Watch, args: argparse.Namespace) -> bool:
    """Look at the rest of the run. Did that raise an alarm of `--fail-on`?"""
    from ..checks import scan

    scan(store, _query(next(r for r in store.runs() if (r.project, r.run) == made.place)))
    return _tell(made.look(_tell_broken), args)


def _tell(news: list[Finding], args: argparse.Namespace) -> bool:
    """Print alarms. Is one of them of `--fail-on`?"""
    out = console()
    for alarm in news:
        if args.json:
            json_line(alarm)
            continue
        line = Text(f"step {alarm.step}  ", style="bold").append(alarm.check, "bold yellow")
        if alarm.split:
            line.append(f"  {render.safe(alarm.split)}", "not bold dim")
        out.print(line)
        out.print(Text(f"  {render.safe(alarm.text)}"))
        out.print(Text(f"  {_opens(alarm)}", style="dim"))
    return any(alarm.check in args.fail_on for alarm in news)


def _tell_broken(id: str, error: str) -> None:
    say(f"the check {id} is broken: {error}; the others go on")
