"""`python -m rollscope.store.seal RUN_DIRECTORY LOG ...`: what a writer's sealer runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import duckdb

from .. import writers
from .compact import compact, wants_compaction
from .segment import CannotSeal, seal


def main(arguments: list[str]) -> int:
    """Seal the logs that are named, with low priority."""
    os.nice(19)
    directory, failed = Path(arguments[0]), False
    for log in arguments[1:]:
        try:
            seal(directory, log)
        except (CannotSeal, OSError, duckdb.Error) as error:
            print(f"rollscope: {log} was not sealed: {error}", file=sys.stderr)
            failed = True
    _compact_if_last(directory)
    return int(failed)


def _compact_if_last(directory: Path) -> None:
    """The last writer to finish merges the segments, if they are many."""
    infos = writers.read_infos(directory).values()
    is_last = all(info.finished is not None or writers.is_gone(info) for info in infos)
    if is_last and wants_compaction(directory):
        compact(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
