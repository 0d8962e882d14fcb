"""Watching verl's functions, with what Ray does to classes in mind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from .._seam import Seams, Watcher, at, in_place_of, is_ours, original

LOST = "what it tells is missing from the rollouts; the rest is recorded"


class VerlSeams(Seams):
    """Methods are replaced in a class, in its bases, and in subclasses that have the very same
    function: Ray copies every inherited method into an actor's class, where a change of the base
    would not be seen, and where another function than the base's would be sent by value.
    """

    def wrap(
        self, owner: Any, path: str, looks: Callable[..., Any], make: Callable[[Any], Any]
    ) -> None:
        """Put `make(function)` in the place of a function. For what a watcher cannot do; `looks`
        names the parameters that are looked at."""
        if self.fit(owner, {path: looks}, LOST):
            holder, name, _ = at(owner, path)
            self._everywhere(holder, name, make)

    def _watch(self, owner: Any, path: str, watcher: Watcher, anew: bool) -> None:
        holder, name, _ = at(owner, path)
        self._everywhere(holder, name, lambda function: self.watched(function, watcher, path))

    def _everywhere(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        for owner in holder.__mro__ if isinstance(holder, type) else (holder,):
            function = vars(owner).get(name)
            if function is None or is_ours(function):
                continue
            ours = in_place_of(function, make(function))
            for heir in _with_subclasses(owner):
                if vars(heir).get(name) is function:
                    self.replace(heir, name, ours)

    def restore(self) -> None:
        """Put every original back, also in modules of verl that have imported ours since."""
        for module in [m for name, m in list(sys.modules.items()) if name.startswith("verl.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and is_ours(value):
                    setattr(module, name, original(value))
        super().restore()


def _with_subclasses(owner: Any) -> Iterator[Any]:
    yield owner
    subclasses: list[type] = owner.__subclasses__() if isinstance(owner, type) else []
    for sub in subclasses:
        yield from _with_subclasses(sub)


seams = VerlSeams("verl", "verl")
