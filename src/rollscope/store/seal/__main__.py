"""`python -m rollscope.store.seal RUN_DIRECTORY LOG ...`: what a writer's sealer runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import duckdb

from ..listing import list_run
from .compact import compact, is_compacting, sweep, wants_compaction
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
    _keep_small(directory)
    return int(failed)


def _keep_small(directory: Path) -> None:
    """Merge the segments if they are many, or if many late facts are not folded in: while the run
    goes on, too, so that it opens as fast as a finished one. One helper does it at a time."""
    files = list_run(directory)
    if wants_compaction(files) and not is_compacting(directory):
        compact(directory)
    elif files.spare:
        sweep(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
