"""`fate` and `failures`: what the page's screens of these names count."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .opening import add_query, opened, text
from .output import Column, json_line, say, table

if TYPE_CHECKING:
    from ..query.overview import Tally

_TALLIES = (Column("name", width=40), Column("count", width=9), Column("q", "query"))


def arguments(_: str, command: argparse.ArgumentParser) -> None:
    add_query(command)


def fate(args: argparse.Namespace) -> int:
    with opened(args) as store:
        stages, ends = store.funnel(text(args)), store.fates(text(args))
    told = len(stages) > 2
    if args.json:
        for what, tallies in (("stage", stages), ("end", ends)):
            for tally in tallies:
                json_line({what: tally.name, "count": tally.count, "q": tally.query,
                           "reasons": tally.reasons})  # fmt: skip
        return 0
    table(_tree(stages, "− "), _TALLIES)
    say("")
    table(_tree(ends, "  "), _TALLIES)
    if not told:
        say("no fate was recorded: nobody said which were kept, dropped or trained on")
    return 0


def _tree(tallies: Iterable[Tally], before: str) -> Iterable[dict[str, Any]]:
    """Each count, and below it what it is made of."""
    for tally in tallies:
        yield {"name": tally.name, "count": tally.count, "q": tally.query}
        for reason in tally.reasons:
            yield {"name": before + reason.name, "count": reason.count, "q": reason.query}


def failures(args: argparse.Namespace) -> int:
    with opened(args) as store:
        found = store.failures(text(args))
    if args.json:
        for failure in found:
            json_line(failure)
        return 0
    table(
        ({**{n: getattr(f, n) for n in f.__struct_fields__}, "example": f.examples[0]}
         for f in found),
        (
            Column("kind", width=14),
            Column("type", width=20),
            Column("count", width=7),
            Column("example", width=20),
            Column("text"),
        ),
    )  # fmt: skip
    say(f"{sum(f.count for f in found):,} failed or were cut off")
    return 0
