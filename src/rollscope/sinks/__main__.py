"""`python -m rollscope.sinks RUN_DIRECTORY SINK`: the forwarding process. Writers start it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import lock


def main(directory: Path, name: str) -> None:
    """Forward, if nobody else does. What is heavy is loaded only then."""
    held = lock.take_patiently(directory, name)
    if held is None:
        return
    os.nice(10)
    from .process import Forwarding

    Forwarding(directory, name).run(lambda: not lock.is_removed(held))
    os.close(held)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
