"""Work in pieces on all cores. NumPy lets other threads run while it computes.

The linear algebra below NumPy must not share out each small product by itself as well: its
threads would spend more time waiting for each other than working (ten times, when measured
on a busy machine). `demo.start` tells it so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def spread(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """The results in the order of the pieces, so that sums do not depend on the cores."""
    return _pool().map(work, pieces)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="rollscope-demo")
