"""`compact`, `rm`, `doctor`: keep the store in order."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from . import render
from .opening import opened, root
from .output import Failed, console, counted, json_line, progress, say

if TYPE_CHECKING:
    from ..query import Store
    from ..query.runs import RunSummary

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "rm":
        command.add_argument("run", metavar="PROJECT/RUN", help="the run to remove")
        command.add_argument("--yes", action="store_true", help="do not ask")
    if name == "doctor":
        command.add_argument(
            "--deep", action="store_true", help="read every sealed file and check its checksum"
        )
        command.add_argument(
            "--scan", action="store_true", help="let the checks look at what is new, first"
        )
    if name == "compact":
        command.add_argument("run", nargs="?", metavar="PROJECT/RUN", help="only this run")


def compact(args: argparse.Namespace) -> int:
    from ..store.seal.compact import compact as compact_run

    root(args)  # it writes, so it refuses an address
    with opened(args) as store:
        runs = _runs(store, args.run)
    refused = 0
    with progress("compacting", len(runs)) as update:
        for number, run in enumerate(runs, 1):
            done = compact_run(Path(run.directory))
            update(number)
            refused += len(done.refused)
            if args.json:
                json_line({"project": run.project, "run": run.run, "result": done})
                continue
            sealed, merged = counted(len(done.sealed), "log"), counted(done.merged, "segment")
            what = f"{sealed} sealed, {merged} merged"
            is_idle = not (done.sealed or done.merged or done.refused)
            say(f"{run.project}/{run.run}: {'nothing to do' if is_idle else what}")
            for why in done.refused:
                say(f"  left alone: {why}")
    return int(refused > 0)


def _runs(store: Store, name: str | None) -> list[RunSummary]:
    """The run of this name, or all."""
    found = [run for run in store.runs() if name in (None, f"{run.project}/{run.run}")]
    if name and not found:
        raise Failed(f"no run {name!r}; rollscope ls lists them")
    return found


def rm(args: argparse.Namespace) -> int:
    from ..store.runs import remove_run

    folder = root(args)
    with opened(args) as store:
        (run,) = _runs(store, args.run)
    if not args.yes:
        if not sys.stdin.isatty():
            raise Failed(f"this removes {counted(run.rollouts, 'rollout')}; confirm with --yes", 2)
        say(f"Remove {args.run} with its {counted(run.rollouts, 'rollout')}? Type yes: ")
        if sys.stdin.readline().strip() != "yes":
            return 1
    remove_run(folder, run.project, run.run)
    if args.json:
        json_line({"removed": args.run, "rollouts": run.rollouts})
    else:
        say(f"removed {args.run}, {counted(run.rollouts, 'rollout')}")
    return 0


def _scan(args: argparse.Namespace, store: Store) -> None:
    from ..checks import scan

    root(args)  # it writes, so it refuses an address
    with progress("looking", None) as update:
        report = scan(store, progress=update)
    for run, why in report.skipped.items():
        say(f"{run} was not looked at: {why}")


def doctor(args: argparse.Namespace) -> int:
    """Exit code 1 if data was lost, cannot be read, or is wrong."""
    from ..checks import SettingsError
    from ..checks.doctor import examine
    from ..checks.recorded import recorded

    with opened(args) as store:
        try:
            if args.scan:
                _scan(args, store)
            found = [*examine(store.reader, deep=args.deep), *recorded(store)]
        except SettingsError as error:
            raise Failed(str(error), 2) from None
        count = store.rollouts().count()
    if args.json:
        for finding in found:
            json_line(finding)
        return int(any(f.level == "error" for f in found))
    out, last = console(), ""
    for finding in sorted(found, key=lambda f: f.run or ""):
        if (finding.run or "the store") != last:
            last = finding.run or "the store"
            out.print(Text(render.safe(last), style="bold"))
        text = Text(f"  {finding.level:8}", style=STYLES[finding.level])
        text.append(render.safe(finding.text), style="default")
        out.print(text)
        if finding.advice:
            out.print(Text(f"            {render.safe(finding.advice)}", style="dim"))
    errors = sum(f.level == "error" for f in found)
    warnings = sum(f.level == "warning" for f in found)
    told = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    say(f"{counted(count, 'rollout')} readable; {told}")
    return int(errors > 0)
