"""What every answer needs: the store, what it has lately been asked, and what is allowed."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from ..model import Message, Rollout
from ..query import NotFound, Store
from ..query.rows import OpenedRollout
from ..store.read.bodies import Sketch, sketch
from .labels import Labels
from .turns import Turns

T = TypeVar("T")

WHOLE = 8
"""Whole rollouts kept at hand: the one being read, its siblings, the ones compared."""


SHORT = 300
"""Up to so many messages a rollout is read whole, once, and its windows are cut from that."""


class Desk:
    """One per server. Everything on it may be used by any thread."""

    def __init__(self, store: Store, *, can_label: bool, dir: str | None = None) -> None:
        self.store = store
        self.can_label = can_label
        self.dir = dir
        self.labels = Labels(store)
        self.turns = Turns()
        self._boot = secrets.token_hex(4)
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._making: dict[Any, threading.Event] = {}
        self._lock = threading.Lock()

    @property
    def generation(self) -> str:
        """Changes whenever the store has, and with every start of the server."""
        return f"{self._boot}-{self.store.version}"

    def opened(self, id: str) -> OpenedRollout:
        """A rollout and its thin row; kept, so that turning its pages does not read it again."""
        return self.keep(("opened", id), lambda: self.store.opened(id, SHORT), WHOLE)

    def rollout(self, id: str) -> Rollout:
        """A whole rollout, however long."""
        row, rollout = self.opened(id)
        if rollout is not None:
            return rollout
        return self.keep(("rollout", row.id), lambda: self.store.get(row.id), WHOLE)

    def outline(self, id: str) -> list[Sketch]:
        """Every message of a rollout without its body."""
        row, rollout = self.opened(id)
        if rollout is not None:
            return [sketch(n, message) for n, message in enumerate(rollout.messages)]
        return self.keep(("outline", row.id), lambda: self.store.outline(row.id), WHOLE)

    def messages(self, id: str, first: int, stop: int) -> list[Message]:
        """A window of messages. Of a long rollout only the window is read."""
        row, rollout = self.opened(id)
        if rollout is not None:
            return rollout.messages[first:stop]
        return self.store.messages(row.id, first, stop)

    def message(self, id: str, n: int) -> Message:
        """One message; kept, because a long one is asked for window by window."""
        row, rollout = self.opened(id)
        found = rollout.messages[n : n + 1] if rollout else None
        if not rollout:
            found = self.keep(("message", row.id, n), lambda: self.messages(id, n, n + 1), 2)
        if not found:
            raise NotFound(f"rollout {id!r} has {len(self.outline(id))} messages, counted from 0")
        return found[0]

    def keep(self, key: Any, make: Callable[[], T], most: int = 64) -> T:
        """What `make` gives, kept until the store changes; of one kind only the latest.

        Who asks while it is made waits for it: a page asks for a rollout and for its tokens at
        once, and each would read all of it.
        """
        place = (self.generation, key[0], key[1:])
        while True:
            with self._lock:
                if place in self._kept:
                    self._kept.move_to_end(place)
                    value: T = self._kept[place]
                    return value
                others = self._making.get(place)
                if others is None:
                    mine_is_made = self._making[place] = threading.Event()
                    break
            others.wait()  # and if they failed, it is made here
        try:
            made = make()
            self._put(place, made, most)
        finally:
            with self._lock:
                del self._making[place]
            mine_is_made.set()
        return made

    def _put(self, place: Any, made: Any, most: int) -> None:
        with self._lock:
            self._kept[place] = made
            mine = [p for p in self._kept if p[1] == place[1]]
            for old in mine[: max(0, len(mine) - most)]:
                del self._kept[old]
            for old in [p for p in self._kept if p[0] != place[0]]:
                del self._kept[old]

    def close(self) -> None:
        self.labels.close()
