"""Replacing verl's functions, and putting them back when the run is finished."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

_originals: list[tuple[Any, str, Any]] = []
_replaced: dict[Any, Any] = {}
"""Our functions, each with the one in whose place it is."""

_wrappers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Ours. A mark on the function would not do: Ray wraps actors' methods and copies all marks."""


def original(function: Any) -> Any:
    """verl's own function, where a module has imported ours by its name."""
    return _replaced.get(function, function)


def replace(owner: Any, name: str, function: Any) -> None:
    """Put `function` in the place of one that `owner` (a class or module) has itself."""
    before = original(vars(owner)[name])
    _originals.append((owner, name, before))
    _replaced[function] = before
    setattr(owner, name, function)


def wrap_class(cls: type, name: str, wrap: Callable[[Any], Any]) -> None:
    """Wrap a method in this class, its bases, and in subclasses that have the very same
    function: Ray copies every inherited method into an actor's class, where a change of the
    base would not be seen, and where another function than the base's would be sent by value.
    """
    if not hasattr(cls, name):
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
    for owner in cls.__mro__:
        method = vars(owner).get(name)
        if method is None or method in _wrappers:
            continue
        wrapped = wrap(method)
        _wrappers.add(wrapped)
        for heir in _with_subclasses(owner):
            if vars(heir).get(name) is method:
                replace(heir, name, wrapped)


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    subclasses: list[type] = cls.__subclasses__()
    for sub in subclasses:
        yield from _with_subclasses(sub)


def restore() -> None:
    """Put every original back, the last replaced first; also where it was imported since."""
    while _originals:
        owner, name, before = _originals.pop()
        setattr(owner, name, before)
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("verl.")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in _replaced:
                setattr(module, name, _replaced[value])
    _replaced.clear()
