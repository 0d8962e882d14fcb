"""The guard around training, and what it has seen.

Nothing that goes wrong inside Rollscope may stop or change a training run. An internal error
is logged once with what to do, counted, and kept for the writer's file, where `rollscope
doctor` finds it. `ROLLSCOPE_STRICT=1` raises it instead.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..store.writers import WriterProblem

logger = logging.getLogger("rollscope")
F = TypeVar("F", bound=Callable[..., Any])

_MOST = 100  # different problems that are kept; the rest is only counted


class Problems:
    """What went wrong in this process, each text once with its count.

    A run reports only its own: problems that earlier runs have reported are subtracted.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_text: dict[str, WriterProblem] = {}
        self._told: dict[str, int] = {}

    def add(self, text: str) -> bool:
        """Count a problem. True the first time it is met since a run ended."""
        now = time.time()
        with self._lock:
            if len(self._by_text) >= _MOST and text not in self._by_text:
                text = "more problems than are kept apart"
            seen = self._by_text.setdefault(text, WriterProblem(text=text, count=0, first=now))
            seen.count += 1
            seen.last = now
            return seen.count == self._told.get(text, 0) + 1

    def told(self) -> dict[str, int]:
        """How often earlier runs have reported each text."""
        with self._lock:
            return dict(self._told)

    def tell(self) -> None:
        """A run ends: the problems met so far count as reported."""
        with self._lock:
            self._told = {text: problem.count for text, problem in self._by_text.items()}

    def list(self, told: dict[str, int]) -> list[WriterProblem]:
        """The problems met since `told`."""
        with self._lock:
            return [
                WriterProblem(text=p.text, count=p.count - n, first=p.first, last=p.last)
                for p in self._by_text.values()
                if p.count > (n := told.get(p.text, 0))
            ]

    def forget(self) -> None:
        """Begin anew: the child of a fork has no problems yet."""
        self._lock = threading.RLock()
        self._by_text = {}
        self._told = {}


problems = Problems()


def report(where: str, text: str) -> None:
    """Warn once that something is wrong, and keep it for `doctor`."""
    if problems.add(f"{where}: {text}"):
        logger.warning("rollscope: %s: %s", where, text)


class _Odd(list[str]):
    """A list of notes about values that the wire form cannot hold. Each is reported at once."""

    def append(self, text: str) -> None:
        report("not stored as given", text)


odd: list[str] = _Odd()


def is_strict() -> bool:
    return os.environ.get("ROLLSCOPE_STRICT", "").strip().lower() in ("1", "on", "true", "yes")


def swallowed(where: str, error: BaseException) -> None:
    """Count an internal error, log it the first time; raise it if that was asked for."""
    if is_strict():
        raise error
    text = f"{where}: {type(error).__name__}: {error}"
    if problems.add(text):
        logger.error(
            "rollscope: internal error in %s. Training goes on; this was not recorded, and the "
            "same error will only be counted from now on (see `rollscope doctor`). "
            "ROLLSCOPE_STRICT=1 raises it, ROLLSCOPE=off turns recording off.",
            where,
            exc_info=error,
        )


class guard:
    """Context manager and decorator: an error inside is ours, so it never gets out.

    >>> with guard("adapter verl: reading the batch"):
    ...     raise KeyError("uid")  # logged and counted, not raised

    A guarded function returns None when it fails.
    """

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if error is None or not isinstance(error, Exception):
            return False  # KeyboardInterrupt, SystemExit, CancelledError: not ours
        if is_strict():
            return False
        swallowed(self.where, error)
        return True

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return guarded  # type: ignore[return-value]
