"""`op`: a function whose calls become spans of the current rollout.

Outside a rollout, a marked function runs as if it were not marked. Its results and exceptions,
cancellation included, reach the caller unchanged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, overload

from ..model.normalise import plain
from .context import here, inside
from .live import LiveRollout, LiveSpan
from .problems import guard, swallowed

F = TypeVar("F", bound=Callable[..., Any])

_MOST_ITEMS = 1000
"""Items of a generator that are kept; the rest is only counted."""


@overload
def op(function: F, *, name: str | None = None) -> F: ...
@overload
def op(function: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
def op(function: Any = None, *, name: str | None = None) -> Any:
    """Mark a function or method: its calls inside a rollout are recorded as spans.

    Plain and async functions, generators and async generators; arguments are recorded
    without `self` and `cls`.

    >>> @op
    ... def add(a, b=1):
    ...     return a + b
    >>> add(1)
    2
    """
    if function is None:
        return functools.partial(op, name=name)
    return traced(function, name, _begin)


def _begin(function: Marked, args: Any, kwargs: Any) -> LiveSpan | None:
    """The span of this call; None when nothing is recorded here."""
    place = here()
    if place.rollout is None or not place.is_tracing or not place.rollout.is_recorded:
        return None
    return function.span(place.rollout, args, kwargs)


class Marked:
    """A marked function: its name, and the names of its arguments."""

    def __init__(self, function: Any, name: str | None) -> None:
        full = getattr(function, "__qualname__", type(function).__qualname__)
        self.name = name or str(full).rpartition("<locals>.")[2]
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
            first = next(iter(self._signature.parameters), None)
        except (TypeError, ValueError):
            self._signature, first = None, None
        self._owner = first if first in ("self", "cls") else None

    def span(
        self, rollout: LiveRollout, args: Any, kwargs: Any, kind: type[LiveSpan] = LiveSpan
    ) -> LiveSpan | None:
        """The span of a call with these arguments, begun; None if that failed."""
        try:
            span = kind(rollout, self.name, self._arguments(args, kwargs))
            span.begin()
            return span
        except Exception as error:
            swallowed(f"op {self.name}", error)
            return None

    def _arguments(self, args: Any, kwargs: Any) -> dict[str, Any]:
        if self._signature is None:
            return {**({"args": args} if args else {}), **kwargs}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # the call itself will raise it
            return {"args": args, **kwargs}
        bound.apply_defaults()
        return {k: v for k, v in bound.arguments.items() if k != self._owner}


Begin = Callable[[Marked, Any, Any], Any]


def traced(function: Any, name: str | None, begin: Begin) -> Any:
    """`function` with its calls recorded; `begin` says whether and where."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(traced(function.__func__, name, begin))
    known = Marked(function, name)
    kinds = (function, getattr(function, "__call__", None))  # noqa: B004 - an object with one
    for is_kind, wrap in (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.isgeneratorfunction, _generator),
    ):
        if any(map(is_kind, kinds)):
            return wrap(function, known, begin)
    return _plain(function, known, begin)


def _end(span: LiveSpan, error: BaseException | None = None, **outputs: Any) -> None:
    with guard(f"op {span.name}"):
        if "value" in outputs:
            span.outputs = outputs["value"]
        span.end(error)


def _plain(function: Any, known: Marked, begin: Begin) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        span = begin(known, args, kwargs)
        if span is None:
            return function(*args, **kwargs)
        try:
            with inside(span.place):
                result = function(*args, **kwargs)
        except BaseException as error:
            _end(span, error)
            raise
        if inspect.iscoroutine(result):
            return _awaited(span, result)
        _end(span, value=result)
        return result

    return wrapper


async def _awaited(span: LiveSpan, coroutine: Any) -> Any:
    try:
        with inside(span.place):
            result = await coroutine
    except BaseException as error:
        _end(span, error)
        raise
    _end(span, value=result)
    return result


def _coroutine(function: Any, known: Marked, begin: Begin) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        span = begin(known, args, kwargs)
        if span is None:
            return await function(*args, **kwargs)
        return await _awaited(span, function(*args, **kwargs))

    return wrapper


class _Items:
    """The items of a generator, copied when it yielded them."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.count = 0

    def add(self, item: Any) -> None:
        self.count += 1
        if self.count <= _MOST_ITEMS:
            self.kept.append(plain(item, "yielded", []))

    def outputs(self) -> Any:
        if self.count > _MOST_ITEMS:
            return {"first": self.kept, "count": self.count}
        return self.kept


def _generator(function: Any, known: Marked, begin: Begin) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span = begin(known, args, kwargs)
        generator = function(*args, **kwargs)
        if span is None:
            return (yield from generator)
        items, resume, sent = _Items(), generator.send, None
        try:
            while True:
                with inside(span.place):
                    item = resume(sent)
                items.add(item)
                try:
                    resume, sent = generator.send, (yield item)
                except GeneratorExit:
                    with inside(span.place):
                        generator.close()
                    raise
                except BaseException as error:
                    resume, sent = generator.throw, error
        except StopIteration as stop:
            _end(span, value=items.outputs())
            return stop.value
        except BaseException as error:
            _end(span, error, value=items.outputs())
            raise

    return wrapper


def _async_generator(function: Any, known: Marked, begin: Begin) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span = begin(known, args, kwargs)
        generator = function(*args, **kwargs)
        items, resume, sent = _Items(), generator.asend, None
        place = span.place if span is not None else here()
        try:
            while True:
                with inside(place):
                    item = await resume(sent)
                if span is not None:
                    items.add(item)
                try:
                    resume, sent = generator.asend, (yield item)
                except GeneratorExit:
                    with inside(place):
                        await generator.aclose()
                    raise
                except BaseException as error:
                    resume, sent = generator.athrow, error
        except StopAsyncIteration:
            if span is not None:
                _end(span, value=items.outputs())
        except BaseException as error:
            if span is not None:
                _end(span, error, value=items.outputs())
            raise

    return wrapper
