"""Writes docs/configuration.md from the code: python docs/make_configuration.py

A test compares the page with the output of this program.
"""

from __future__ import annotations

from pathlib import Path

from rollscope.capture import background, settings
from rollscope.model import redact
from rollscope.sinks import KNOWN
from rollscope.store import writers
from rollscope.store.write import log

PAGE = Path(__file__).parent / "configuration.md"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def page() -> str:
    options = table(
        ("variable", "value", "when not set", "what it does"),
        [(f"`{o.name}`", o.expected, o.default, o.doc) for o in settings.OPTIONS],
    )
    patterns = "\n".join(f"- `{name}`: `{p}`" for name, p in redact.PATTERNS.items())
    fixed = table(
        ("what", "how much", "name in the code"),
        [
            ("a record waits for others before its frame is written", f"{background.GATHER * 1e3:.0f} ms", "`capture.background.GATHER`"),
            ("the writer's thread works before it lets others run", f"{background.HOLD * 1e3} ms", "`capture.background.HOLD`"),
            ("a failed write is tried again after", f"{background.RETRY:.0f} s", "`capture.background.RETRY`"),
            ("the end of the program waits for a slow disk at most", f"{background.CLOSE_WAIT:.0f} s", "`capture.background.CLOSE_WAIT`"),
            ("a frame is full at", f"{log.FRAME_RAW >> 20} MB of text", "`store.write.log.FRAME_RAW`"),
            ("a log takes no new rollouts at", f"{log.MAX_RAW >> 20} MB of text", "`store.write.log.MAX_RAW`"),
            ("heartbeat of a writer", f"{writers.BEAT:.0f} s", "`store.writers.BEAT`"),
            ("a writer that was silent for so long begins a new log", f"{writers.SILENT:.0f} s", "`store.writers.SILENT`"),
            ("an observer takes a silent writer for dead after", f"{writers.DEAD:.0f} s", "`store.writers.DEAD`"),
        ],
    )  # fmt: skip
    return f"""# Configuration

Generated from the code by `python docs/make_configuration.py`.

You need to set nothing. Variables win over the arguments of `rollscope.init`, so a job script can change
what a program does. A value that cannot be understood is reported and ignored. Only wrong arguments of
`init` raise.

## Environment variables

{options}

## Names for `redact`

Each match is replaced by its name in brackets: `[email]`. The plurals `emails`, `keys`, ... mean the same.
`regex=...` takes a pattern of your own, which goes on to the end of the value; its matches become
`[redacted]`. `rollscope export --redact` and `rollscope bundle --redact` take the same names.

{patterns}

## Sinks

Known: {", ".join(f"`{name}`" for name in KNOWN)}; other packages add more by
entry points of the group `rollscope.sinks`. [sinks.md](sinks.md) lists their options.

## Fixed sizes and times

{fixed}
"""


if __name__ == "__main__":
    PAGE.write_text(page())
