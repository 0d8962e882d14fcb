"""Writes the table of options in docs/sinks.md from the code: python docs/make_sinks.py

A test compares the page with the output of this program.
"""

from __future__ import annotations

import re
from pathlib import Path

from rollscope.sinks import KNOWN, load

PAGE = Path(__file__).parent / "sinks.md"
MARKS = re.compile(r"(<!-- options -->\n).*?(<!-- end of options -->)", re.DOTALL)


def table() -> str:
    rows = [
        f"| {name} | `{option}` | {text} |"
        for name in KNOWN
        for option, text in load(name).OPTIONS.items()
    ]
    return "\n".join(["| sink | option | what it does |", "|---|---|---|", *rows]) + "\n"


def page(text: str) -> str:
    return MARKS.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
