"""Work in pieces on all cores. NumPy lets other threads run while it computes.

The linear algebra below NumPy must not share out each small product by itself as well: its
threads would spend more time waiting for each other than working (ten times, when measured
on a busy machine).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def spread(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """The results in the order of the pieces, so that sums do not depend on the cores."""
    return _pool().map(work, pieces)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="rollscope-demo")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Each product of matrices in one thread; afterwards as it was."""
    blas = _openblas()
    if blas is None:  # another library, which nobody here knows how to ask
        yield
        return
    get, set = blas
    before = get()
    set(1)
    try:
        yield
    finally:
        set(before)


def _openblas() -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """The functions that get and set the number of threads of NumPy's own OpenBLAS."""
    package = Path(np.__file__).parent
    for path in [
        *package.parent.glob("numpy.libs/*openblas*"),
        *package.glob(".dylibs/*openblas*"),
    ]:
        library = ctypes.CDLL(str(path))
        for name in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            if hasattr(library, name.format("set_num_threads")):
                get = getattr(library, name.format("get_num_threads"))
                return get, getattr(library, name.format("set_num_threads"))
    return None
