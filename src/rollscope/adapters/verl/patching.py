"""Watching verl's functions, with what Ray does to classes in mind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from .._seam import Seams, Watcher, in_place_of, is_ours, original, taken

LOST = "what it tells is missing from the rollouts; the rest is recorded"


class VerlSeams(Seams):
    """Replaces a method in a class, in its bases, and in subclasses that have the same function.

    Ray copies every inherited method into an actor's class. There a change of the base would not
    be seen, and a function that differs from the base's would be sent by value.
    """

    def wrap(
        self, owner: Any, path: str, looks: Callable[..., Any], make: Callable[[Any], Any]
    ) -> None:
        """Put `make(function)` in the place of a function, for what a watcher cannot do.

        The parameters of `looks` are those that `make` looks at.
        """
        if self.fit(owner, {path: looks}, LOST):
            holder, name, _ = taken(owner, path, looks)
            self._everywhere(holder, name, make)

    def _watch(self, owner: Any, path: str, watcher: Watcher, anew: bool) -> None:
        holder, name, _ = taken(owner, path, watcher)
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
        """Put every original back, even in modules of verl that have imported ours since."""
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
