"""What is known about tinker-cookbook's loop in this process."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from ... import capture
from .._seam import Seams

PACKAGE = "tinker_cookbook"

_MOST = 100_000
"""How many groups are remembered, to recognise them when they are rolled out again."""


class Names(NamedTuple):
    project: str | None = None
    run: str | None = None
    config: Mapping[str, Any] | None = None
    is_new: bool = False
    """Does a training begin that goes on from no checkpoint?"""


class Made(NamedTuple):
    """A group that was rolled out."""

    group: weakref.ref[Any]
    keys: list[str]
    """Of its rollouts."""
    step: int | None


class State:
    def __init__(self) -> None:
        self.names = Names()
        self.run: capture.Run | None = None
        self.tokenizer: Any = None
        self.sources = 0
        self.next_batch = 0
        self.groups: dict[int, Made] = {}
        self.rolls: dict[str, int] = {}
        self.waiting: dict[str, list[str]] = {}  # rolled out and not trained yet
        self.data: dict[int, tuple[Any, str]] = {}  # training rows of this step, by their object
        self.versions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        version = getattr(sys.modules.get(PACKAGE), "__version__", "(version not known)")
        self.seams = Seams("tinker", f"tinker-cookbook {version}")
        self.watched: list[str] = []

    def remember(self, group: Any, keys: list[str], step: int | None) -> None:
        self.groups = {k: v for k, v in self.groups.items() if v.group() is not None}
        self.groups[id(group)] = Made(weakref.ref(group), keys, step)

    def made(self, group: Any) -> Made | None:
        found = self.groups.get(id(group))
        return found if found is not None and found.group() is group else None

    def keys(self, group: Any) -> list[str] | None:
        found = self.made(group)
        return found.keys if found is not None else None

    def roll(self, name: str) -> int:
        """How often this group was rolled out before. Old ones are forgotten: a run is long."""
        number = self.rolls.pop(name, 0)
        self.rolls[name] = number + 1
        for memory in (self.rolls, self.waiting):
            while len(memory) > _MOST:
                del memory[next(iter(memory))]
        return number
