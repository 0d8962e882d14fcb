"""`ls`, `grep`, `tail`, `group`, `task`: which rollouts are there?"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from rich.text import Text

from . import render
from .opening import add_on, add_query, how_to_record, on_ray, opened, text
from .output import Column, Failed, console, json_line, say, table, whole_number
from .snippets import MARGIN, snippet

if TYPE_CHECKING:
    from ..query import Query, Row, Store
    from ..query.selection import Counts

ROLLOUTS = (
    Column("id", width=20),
    Column("step", width=6),
    Column("split", width=5),
    Column("task", width=12),
    Column("index", "n", width=3),
    Column("reward", width=6),
    Column("fate", width=9),
    Column("preview", "answer"),
)


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name in ("ls", "grep", "tail"):
        add_query(command)
        command.add_argument(
            "--limit", type=whole_number(0), default=20, help="at most so many rows (default: 20)"
        )
    if name in ("ls", "grep"):
        command.add_argument(
            "--order",
            default="-time",
            help="what to sort by (default: -time), e.g. -advantage or step,index",
        )
    if name == "grep":
        add_on(command)
    if name == "tail":
        command.add_argument("--once", action="store_true", help="print the newest and stop")
    if name == "group":
        command.add_argument("id", help="id of any rollout of the group, or the beginning of one")
    if name == "task":
        command.add_argument("task", help="the task's key")
        add_query(command)


def ls(args: argparse.Namespace) -> int:
    with opened(args) as store:
        if args.query:
            return _rollouts(store, args)
        runs = store.runs()
        if not runs:
            say(how_to_record(args))
            return 1
        if args.json:
            for run in runs:
                json_line(run)
            return 0
        rows = [{**asdict(run), "when": _ago(run.last), "steps": _steps(run)} for run in runs]
        table(
            rows,
            (
                Column("project", width=16),
                Column("run"),
                Column("rollouts", width=9),
                Column("steps", width=11),
                Column("reward", width=7),
                Column("when", "last", width=12),
            ),
        )
    return 0


def grep(args: argparse.Namespace) -> int:
    is_on_ray = on_ray(args)
    with opened(args) as store:
        if not is_on_ray:
            return _rollouts(store, args, snippets=True)
        from ..query.on_ray import found

        rows, counts = found(store, text(args), args.order, args.limit)
        return _tell(store, args, rows, lambda: counts, store.query(text(args)))


def tail(args: argparse.Namespace) -> int:
    """The newest rollouts, then each new one as it is recorded."""
    with opened(args) as store:
        newest = list(store.rollouts(text(args), order="-time", limit=args.limit))[::-1]
        _print_rows(newest, args.json)
        seen = {row.id for row in newest}
        last = max((row.time for row in newest if row.time is not None), default=0.0)
        while not args.once:
            time.sleep(0.5)
            since = f"{text(args)} time:>={last - 2.0!r}"
            fresh = [r for r in store.rollouts(since, order="time", limit=1000) if r.id not in seen]
            _print_rows(fresh, args.json)
            seen |= {row.id for row in fresh}
            last = max([last, *(row.time for row in fresh if row.time is not None)])
    return 0


def group(args: argparse.Namespace) -> int:
    """The siblings, in the order of their index."""
    with opened(args) as store:
        siblings = store.group(args.id)
        if args.json:
            _print_rows(siblings, True)
            return 0
        first = siblings[0]
        console().print(
            Text(f"task {render.one_line(first.task, 200)} · step {render.number(first.step)}"),
            Text(render.one_line(first.prompt_preview, 200), style="dim"),
            sep="\n",
        )
        parts = sorted({name for row in siblings for name in row.rewards or {}})[:2]
        rows = [{**row.asdict(), **{f"rewards.{k}": v for k, v in (row.rewards or {}).items()}}
                for row in siblings]  # fmt: skip
        table(
            rows,
            (
                Column("index", "n", width=3),
                Column("id", width=20),
                Column("reward", width=6),
                *(Column(f"rewards.{name}", name[:7], width=7) for name in parts),
                Column("advantage", "adv", width=7),
                Column("response_tokens", "tokens", width=6),
                Column("fate", width=9),
                Column("preview", "answer"),
            ),
        )
    return 0


def task(args: argparse.Namespace) -> int:
    """One task across steps: how often it was solved, and where to look."""
    with opened(args) as store:
        cells = list(store.task_history(args.task, query=text(args)))
        if not cells:
            raise Failed(f"no rollout of task {args.task!r}")
        if args.json:
            _print_rows(cells, True)
            return 0
        places = itertools.groupby(cells, key=lambda c: (c.run, c.split, c.step))
        table(
            (_at_step(place, list(found)) for place, found in places),
            (
                Column("run", width=18),
                Column("split", width=5),
                Column("step", width=6),
                Column("count", "n", width=3),
                Column("rewards"),
                Column("mean", width=6),
                Column("tokens", width=6),
                Column("best", "best rollout", width=20),
            ),
        )
    return 0


def _at_step(place: tuple[Any, ...], cells: list[Any]) -> dict[str, Any]:
    known = [c for c in cells if c.reward is not None and math.isfinite(c.reward)]
    lengths = [c.response_tokens for c in cells if c.response_tokens is not None]
    best = max(known, key=lambda c: c.reward, default=None)
    return {
        **dict(zip(("run", "split", "step"), place, strict=True)),
        "count": len(cells),
        "rewards": " ".join(render.number(c.reward) for c in cells),
        "mean": sum(c.reward for c in known) / len(known) if known else None,
        "tokens": round(sum(lengths) / len(lengths)) if lengths else None,
        "best": best.id if best is not None else None,
    }


def _rollouts(store: Store, args: argparse.Namespace, snippets: bool = False) -> int:
    chosen = store.rollouts(text(args), order=args.order, limit=args.limit)
    return _tell(store, args, list(chosen), chosen.counts, chosen.query if snippets else None)


def _tell(
    store: Store,
    args: argparse.Namespace,
    rows: list[Row],
    count: Callable[[], Counts],
    query: Query | None,
) -> int:
    """Print what was found; with a query, also the words that it found."""
    if args.json:
        _print_rows(rows, True)
        return 0 if rows else 1
    if query is not None and query.terms:
        _print_hits(store, query, rows)
    else:
        _print_rows(rows, False)
    counts = count()
    note = f"{len(rows):,} of {counts.matched:,} found, of {counts.total:,} in all"
    if counts.superseded:
        note += f"; {counts.superseded:,} replaced by a later launch are left out (launch:...)"
    say(note)
    return 0 if rows else 1


def _print_rows(rows: Iterable[Any], as_json: bool) -> None:
    if as_json:
        for row in rows:
            json_line(row.asdict())
        return
    table(rows, ROLLOUTS)


def _print_hits(store: Store, query: Query, rows: Iterable[Any]) -> None:
    """A line about each rollout, and one with the words that were found, as wide as the screen."""
    out = console()
    for row in rows:
        place = [f"step {render.number(row.step)}", row.split, row.task,
                 f"n {render.number(row.index)}", f"reward {render.number(row.reward)}",
                 row.fate]  # fmt: skip
        known = " · ".join(render.one_line(word, 40) for word in place if word is not None)
        about = Text(render.one_line(row.id, 40), style="bold", no_wrap=True, overflow="ellipsis")
        out.print(about.append(f"  {known}", "not bold"))
        found = snippet(store, query, row.id, out.width)
        out.print(found or Text(MARGIN + render.one_line(row.preview, out.width - len(MARGIN))))


def _steps(run: Any) -> str:
    if run.first_step is None:
        return render.MISSING
    return f"{run.first_step}–{run.last_step}"


def _ago(when: float | None) -> str:
    if when is None:
        return render.MISSING
    seconds = time.time() - when
    if seconds > 14 * 86400:
        return datetime.fromtimestamp(when).strftime("%Y-%m-%d")
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "now" if seconds < 5 else f"{seconds:.0f} s ago"
