"""`python -m rollscope.sinks RUN_DIRECTORY SINK`: the forwarding process. Writers start it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import lock


def main(directory: Path, name: str) -> None:
    """Forward, unless another process does. Do it again if a writer began meanwhile."""
    os.nice(10)
    while (held := lock.take_patiently(directory, name)) is not None:
        if not _forward(directory, name, held):
            return


def _forward(directory: Path, name: str, held: int) -> bool:
    """Forward until the run has ended. True: there may be more to do."""
    from .process import Forwarding  # heavy, and most processes find the lock held

    forwarding = Forwarding(directory, name)
    forwarding.run(lambda: not lock.is_removed(held))
    os.close(held)
    return forwarding.is_outrun()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
