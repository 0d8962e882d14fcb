"""What every answer needs: the store, what it has lately been asked, and what is allowed."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..model import Message, Rollout
from ..query import Store
from ..query.rows import COLUMNS, Row
from ..store.read.bodies import Sketch, sketch
from .labels import Labels

T = TypeVar("T")

WHOLE = 8
"""Whole rollouts kept at hand: the one being read, its siblings, the ones compared."""


SHORT = 300
"""Up to so many messages a rollout is read whole, once, and its windows are cut from that."""


class Opened(NamedTuple):
    """A rollout that is being read."""

    row: Row
    """Its thin row, superseded or not."""
    rollout: Rollout | None
    """None: it is not short."""


class NotFound(Exception):
    """What was asked about is not there; the text says so to the person who asked."""


class Desk:
    """One per server. Everything on it may be used by any thread."""

    def __init__(self, store: Store, *, can_label: bool, dir: str | None = None) -> None:
        self.store = store
        self.reader: Any = store.reader
        self.can_label = can_label
        self.dir = dir
        self.labels = Labels(store)
        self._boot = secrets.token_hex(4)
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def generation(self) -> str:
        """Changes whenever the store has, and with every start of the server."""
        return f"{self._boot}-{self.reader.version}"

    def find(self, id: str) -> str:
        """The whole id of a rollout; `NotFound` if there is none, or several begin so."""
        try:
            return self.store.find(id)
        except KeyError as error:
            raise NotFound(str(error.args[0])) from None

    def opened(self, id: str) -> Opened:
        """A rollout and its thin row; kept, so that turning its pages does not read it again."""

        def make() -> Opened:
            found = self.reader.opened(id, SHORT) or self.reader.opened(self.find(id), SHORT)
            if found is None:
                raise NotFound(f"no rollout {id!r}")
            row = Row(COLUMNS, [found.row[name] for name in COLUMNS])
            return Opened(row, found.rollout)

        return self.keep(("opened", id), make, WHOLE)

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

        def make() -> list[Sketch]:
            found: list[Sketch] = self.reader.outline(row.id)
            return found

        return self.keep(("outline", row.id), make, WHOLE)

    def messages(self, id: str, first: int, stop: int) -> list[Message]:
        """A window of messages. Of a long rollout only the window is read."""
        row, rollout = self.opened(id)
        if rollout is not None:
            return rollout.messages[first:stop]
        found: list[Message] = self.reader.messages(row.id, first, stop)
        return found

    def keep(self, key: Any, make: Callable[[], T], most: int = 64) -> T:
        """What `make` gives, kept until the store changes; of one kind only the latest."""
        place = (self.generation, key[0], key[1:])
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                value: T = self._kept[place]
                return value
        made = make()
        with self._lock:
            self._kept[place] = made
            mine = [p for p in self._kept if p[1] == key[0]]
            for old in mine[: max(0, len(mine) - most)]:
                del self._kept[old]
            for old in [p for p in self._kept if p[0] != place[0]]:
                del self._kept[old]
        return made

    def close(self) -> None:
        self.labels.close()
