"""`python -m rollscope.store.carry TASK`: what processes at home start, and start again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from .. import lock
from .home import Task, token_path


def main(text: str) -> None:
    """Fetch, unless another process does. In a child of its own: Ray kills the children of a worker
    that ends, and the rest is still to be fetched then."""
    task = msgspec.json.decode(text, type=Task)
    if os.fork():
        os._exit(0)
    os.nice(10)
    file = token_path(Path(task.root), task.token)
    try:
        held = lock.take_patiently(file)
    except (OSError, lock.Unsupported):
        return  # the store was removed, or nobody could tell whether another process fetches
    if held is None:
        return
    os.ftruncate(held, 0)
    os.write(held, b"%d\n" % os.getpid())  # for people: Ray gives the process another title
    from .process import Fetching  # loads Ray, and most processes find the lock held

    Fetching(task).run()
    os._exit(0)  # threads may still wait for nodes that do not answer


if __name__ == "__main__":
    main(sys.argv[1])
