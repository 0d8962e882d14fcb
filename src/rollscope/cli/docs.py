"""`docs`: the pages of the documentation, which come with the package."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from rich.markdown import Markdown

from .output import Column, Failed, console, json_line, say, table

INSTALLED = Path(__file__).parents[1] / "docs"
CHECKOUT = Path(__file__).parents[3] / "docs"
_IMAGE = re.compile(r"^!\[.*\]\(.*\)\n", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+://)([^)#]*)(?:#[^)]*)?\)")


def arguments(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "page", nargs="?", help="the page, e.g. query; without one: which there are"
    )


def docs(args: argparse.Namespace) -> int:
    found = pages()
    if args.page is None:
        rows = [{"page": name, "about": about(path), "file": path} for name, path in found.items()]
        if args.json:
            for row in rows:
                json_line(row)
            return 0
        table(rows, (Column("page"), Column("about")))
        say("rollscope docs PAGE shows one")
        return 0
    path = found.get(args.page) or found.get(f"trainers/{args.page}")
    if path is None:
        near = difflib.get_close_matches(args.page, found, 1)
        meant = f"; did you mean {near[0]}?" if near else "; type rollscope docs to see all"
        raise Failed(f"there is no page {args.page!r}{meant}", 2)
    text = path.read_text(encoding="utf-8")
    if args.json:
        json_line({"page": args.page, "text": text})
    elif not sys.stdout.isatty():
        print(text)
    else:
        out = console()
        with out.pager(styles=True):
            out.print(Markdown(_for_a_terminal(text), hyperlinks=False))
    return 0


def pages() -> dict[str, Path]:
    """Every page by its name; those about trainers begin with `trainers/`."""
    folder = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    names = sorted(folder.glob("**/*.md"), key=lambda path: (path.parent != folder, path.name))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in names}


def about(path: Path) -> str:
    """Its heading."""
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _for_a_terminal(text: str) -> str:
    """Without pictures; a link to another page says only what it is about."""
    return _LINK.sub(r"\1", _IMAGE.sub("", text))
