"""`tasks`: every task against runs, steps or models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from . import render
from .opening import add_query, opened, text
from .output import Column, Failed, console, counted, json_line, say, table, whole_number

if TYPE_CHECKING:
    from ..query.matrix import Matrix, TaskCells

WIDTH = 5
"""Characters of a rate: `100 %`."""


def arguments(_: str, command: argparse.ArgumentParser) -> None:
    add_query(command)
    command.add_argument(
        "--across",
        default="",
        metavar="KEY",
        help="key whose values are the columns, e.g. step or meta.model "
        "(default: runs if there are several, else steps)",
    )
    command.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two columns: how much B is better than A"
    )
    command.add_argument(
        "--order",
        help="task, rollouts, rate, spread or difference, - before it for the greatest first "
        "(default: -spread; with --compare, -difference)",
    )
    command.add_argument(
        "--limit", type=whole_number(0), default=20, help="at most so many tasks (default: 20)"
    )


def tasks(args: argparse.Namespace) -> int:
    """First the columns, each with its number, then a row for each task."""
    with opened(args) as store:
        base, other = "", ""
        if args.compare:
            columns = store.matrix(text(args), args.across, limit=0)
            base, other = (_named(columns, name) for name in args.compare)
        order = args.order or ("-difference" if args.compare else "-spread")
        found = store.matrix(
            text(args), args.across, order=order, base=base, other=other, limit=args.limit
        )
    if not found.tasks and args.limit:
        raise Failed("no rollout of a task was found")
    if args.json:
        for task in found.tasks:
            json_line(_told(found, task))
        return 0
    pair = [n for q in (base, other) for n, column in enumerate(found.columns) if q == column.q]
    _print(found, pair)
    return 0


def _named(found: Matrix, name: str) -> str:
    """The `q` of the column with this name."""
    named = [column.q for column in found.columns if name in (column.name, column.q)]
    if len(named) != 1:
        known = ", ".join(column.name or column.q for column in found.columns)
        what = "several columns are called" if named else "no column is called"
        raise Failed(f"{what} {name!r}: {known}", 2)
    return named[0]


def _told(found: Matrix, task: TaskCells) -> dict[str, Any]:
    """A task as JSON, its cells by what they are of."""
    names = [column.q for column in found.columns]
    cells = {names[cell.column]: to_builtins(cell) for cell in task.cells}
    for cell in cells.values():
        del cell["column"]
    return {**to_builtins(task), "cells": cells}


def _print(found: Matrix, pair: list[int]) -> None:
    titles = [
        {"n": n + 1, "name": column.name or "none", "project": column.project,
         "rollouts": column.count, "rate": rate(column.rate), "reward": column.reward}
        for n, column in enumerate(found.columns)
    ]  # fmt: skip
    several = len({column.project for column in found.columns}) > 1
    table(
        titles,
        (
            Column("n", width=3),
            *([Column("project", width=16)] if several else []),
            Column("name", found.across),
            Column("rollouts", width=9),
            Column("rate", width=WIDTH),
            Column("reward", width=7),
        ),
    )
    datasets = len({task.dataset for task in found.tasks}) > 1
    fixed = 20 + 2 + (12 + 2 if datasets else 0) + (8 + 2) + WIDTH + 2
    room = max(1, (console().width - fixed) // (WIDTH + 2))
    shown = pair or list(range(min(room, len(found.columns))))
    console().print()
    last = Column("difference", "B - A", width=8) if pair else Column("spread", width=8)
    table(
        (_row(task) for task in found.tasks),
        (
            Column("task", width=20),
            *([Column("dataset", width=12)] if datasets else []),
            Column("rate", "all", width=WIDTH),
            *(Column(str(n), str(n + 1), width=WIDTH) for n in shown),
            last,
        ),
    )
    tasks = counted(found.count, "task")
    note = f"{len(found.tasks):,} of {tasks}; solved: a reward of one half or more"
    if left := len(found.columns) + found.left_out - len(shown):
        note += f"; {counted(left, 'column')} not shown (--compare A B, --json)"
    say(note)


def _row(task: TaskCells) -> dict[str, Any]:
    cells = {str(cell.column): rate(cell.rate) for cell in task.cells}
    return {
        "task": task.task,
        "dataset": task.dataset,
        "rate": rate(task.rate),
        "spread": None if task.spread is None else f"{100 * task.spread:.0f} pp",
        "difference": None if task.difference is None else f"{100 * task.difference:+.0f} pp",
        **cells,
    }


def rate(value: float | None) -> str:
    """37 %; a rate that is not known looks so."""
    return render.MISSING if value is None else f"{100 * value:.0f} %"
