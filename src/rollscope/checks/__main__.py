"""`python -m rollscope.checks STORE [QUERY]`: looks at what is new, until its standard input ends.

`view` and `serve` start it beside them, and `watch` for the rollouts of one run. A process, not a
thread, because looking takes a core and the answers of the server need theirs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

from ..query import Store
from ..store.read.reader import Reader
from .scanning import Scan
from .settings import SettingsError

EVERY = 2.0
"""Seconds between two looks: rollouts of a group come within a few of each other."""

SHARE = 4.0
"""It rests so many times as long as it worked: a run that is always new does not take a core.
Not for a query: somebody is waiting for what comes out."""


def main(arguments: list[str]) -> int:
    os.nice(15)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # what is finished is kept
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
    # One thread: then rollouts are read in order, and the rest of the machine is left alone.
    store, query = Store(reader=Reader(arguments[0], threads=1)), " ".join(arguments[1:])
    try:
        with Scan(store) as scan:
            while not over.is_set():
                since = time.monotonic()
                _look(scan, query)
                worked = time.monotonic() - since
                over.wait(EVERY / 2 if query else max(EVERY, min(60.0, SHARE * worked)))
    finally:
        store.close()
    return 0


def _look(scan: Scan, query: str) -> None:
    """One scan. What goes wrong is told, and the next one may go well."""
    try:
        scan.run(query)
    except SettingsError as error:
        print(f"rollscope: {error}", file=sys.stderr, flush=True)
        time.sleep(10.0)
    except Exception as error:
        print(f"rollscope: scanning: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _wait_for_end(over: threading.Event) -> None:
    """Whoever started this process has ended when its end of the pipe closes."""
    with contextlib.suppress(OSError):
        while sys.stdin.buffer.read(1024):
            pass
    over.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
