"""`show` and `diff`: read one rollout, or see where two part."""

from __future__ import annotations

import argparse

from rich.rule import Rule
from rich.text import Text

from ..checks.align import Words
from . import render
from .opening import opened
from .output import Failed, console, json_line


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "show":
        command.add_argument("id", help="id of a rollout, or its beginning")
        command.add_argument("--full", action="store_true", help="unfold long texts")
        command.add_argument("--tokens", metavar="STREAM", help="colour tokens: logprob, mask, ...")
    else:
        command.add_argument("a", help="id of a rollout, or its beginning")
        command.add_argument("b", help="id of the other one, or its beginning")
        command.add_argument("--full", action="store_true", help="also show what is the same")


def show(args: argparse.Namespace) -> int:
    with opened(args) as store:
        rollout = store.get(args.id)
    if args.json:
        from ..formats import jsonl

        print(jsonl.encode(rollout).decode())
        return 0
    streams = {name for m in rollout.messages if m.tokens for name in m.tokens.streams}
    if args.tokens and args.tokens not in streams:
        known = ", ".join(sorted(streams)) or "none"
        raise Failed(f"this rollout has no stream {args.tokens!r}; it has: {known}")
    console().print(render.rollout(rollout, full=args.full, stream=args.tokens))
    return 0


def diff(args: argparse.Namespace) -> int:
    """Exit code 0: the same conversation. 1: they part."""
    from ..checks import align

    with opened(args) as store:
        a, b = store.get(args.a), store.get(args.b)
    found = align(a, b)
    if args.json:
        json_line({"a": a.id, "b": b.id, "alignment": found})
        return int(found.divergence is not None)
    out = console()
    out.print(Text("- ", style="red").append_text(render.header(a)))
    out.print(Text("+ ", style="green").append_text(render.header(b)))
    for field in found.fields:
        differs = Text(f"{render.safe(field.name)}: ").append(_value(field.a), "red")
        out.print(differs.append(" → ").append(_value(field.b), "green"))
    if found.divergence is None:
        out.print("The conversations are the same.")
        return 0
    for number, pair in enumerate(found.pairs):
        first = number == found.divergence.pair
        if pair.same and not args.full:
            continue
        title = f"{_place(pair.a)} | {_place(pair.b)}" + (" · first divergence" if first else "")
        out.print(Rule(title, style="yellow" if first else "dim", align="left"))
        if pair.pieces:
            out.print(_pieces(pair.pieces, args.full))
            continue
        side, n, style = (a, pair.a, "red") if pair.a is not None else (b, pair.b, "green")
        assert n is not None
        for line in render.message_lines(n, side.messages[n], full=args.full, stream=None):
            out.print(line, style="" if pair.same else style)
    return 1


def _pieces(pieces: list[Words], full: bool) -> Text:
    text = Text()
    for piece in pieces:
        kind, words = piece.kind, render.safe(piece.text)
        if kind == "same" and not full and len(words) > 300:
            words = f"{words[:120]} … {len(words) - 240:,} the same … {words[-120:]}"
        before, after, style = _MARKS[kind]
        text.append(f"{before}{words}{after}", style=style)
    return text


_MARKS = {"same": ("", "", ""), "only_a": ("[-", "-]", "red"), "only_b": ("{+", "+}", "green")}
"""Around words, as `git diff --word-diff` has them: a pipe has no colours, and not all eyes do."""


def _place(n: int | None) -> str:
    return "nothing" if n is None else f"message {n}"


def _value(value: object) -> str:
    return render.MISSING if value is None else render.one_line(render.as_text(value), 100)
