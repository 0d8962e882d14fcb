"""`python -m rollscope.sinks RUN_DIRECTORY SINK`: the forwarding process. Writers start it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import lock


def main(directory: Path, name: str) -> None:
    """Forward, if nobody else does. What is heavy is loaded only then."""
    os.nice(10)
    while (held := lock.take_patiently(directory, name)) is not None:
        from .process import Forwarding

        forwarding = Forwarding(directory, name)
        forwarding.run(lambda held=held: not lock.is_removed(held))  # type: ignore[misc]
        os.close(held)
        if not forwarding.is_outrun():
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
