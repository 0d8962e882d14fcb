"""Names that a trainer uses more than once: a task again at the same step, or equal rows."""

from __future__ import annotations

import threading

_REMEMBERED = 100_000
"""How many names are counted; the oldest are forgotten. A step has far fewer."""


class Repeats:
    """Counts how often a name was met before. Safe in threads, bounded in size.

    >>> repeats = Repeats()
    >>> [repeats.unique("a"), repeats.unique("b"), repeats.unique("a")]
    ['a', 'b', 'a#1']
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._counts: dict[str, int] = {}
        self._remembered = remembered
        self._lock = threading.Lock()

    def before(self, name: str) -> int:
        """How often this name was met before now."""
        with self._lock:
            count = self._counts.pop(name, 0)
            self._counts[name] = count + 1
            while len(self._counts) > self._remembered:
                del self._counts[next(iter(self._counts))]
            return count

    def unique(self, name: str) -> str:
        """The name, with a number if it was met before."""
        count = self.before(name)
        return f"{name}#{count}" if count else name
