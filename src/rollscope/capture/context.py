"""Where the program is: in which rollout, inside which span.

It travels by context variable, so any number of rollouts may interleave in one event
loop. Plain threads and executors do not inherit context: `bind` carries it over.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .live import LiveRollout

F = TypeVar("F", bound=Callable[..., Any])


class Here(NamedTuple):
    rollout: LiveRollout | None = None
    span: str | None = None
    """Id of the innermost span."""
    is_tracing: bool = True
    """False inside `rollout_trace_attr(trace=False)`."""


_NOWHERE = Here()
_here: ContextVar[Here] = ContextVar("rollscope_here", default=_NOWHERE)


def here() -> Here:
    return _here.get()


def enter(place: Here) -> Token[Here]:
    return _here.set(place)


def leave(token: Token[Here]) -> None:
    """Go back. If a generator is closed in another context than it began in, there is nothing to go
    back to."""
    with suppress(ValueError):
        _here.reset(token)


@contextmanager
def inside(place: Here) -> Iterator[None]:
    token = enter(place)
    try:
        yield
    finally:
        leave(token)


def bind(function: F) -> F:
    """`function`, tied to the current rollout and span, for threads and executors.

    >>> pool.submit(rollscope.bind(search), "query")  # doctest: +SKIP
    """
    place = here()
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def bound_async(*args: Any, **kwargs: Any) -> Any:
            with inside(place):
                return await function(*args, **kwargs)

        return bound_async  # type: ignore[return-value]

    @functools.wraps(function)
    def bound(*args: Any, **kwargs: Any) -> Any:
        with inside(place):
            return function(*args, **kwargs)

    return bound  # type: ignore[return-value]
