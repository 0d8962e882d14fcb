"""Facts whose rollout nobody has logged: told at the end of the program, where that can be known.

Any process may annotate what another one logs. This process knows only what it has logged itself,
and how many rollouts the others have. `rollscope doctor` counts such facts exactly.
"""

from __future__ import annotations

from pathlib import Path

from ..store.writers import read_infos

_MOST = 100_000
"""How many ids are remembered, at about 200 bytes each. Beyond it, nothing is told at the end."""


class Unmatched:
    def __init__(self) -> None:
        self._logged: dict[str, None] = {}
        self._annotated: dict[str, None] = {}

    def logged(self, id: str) -> None:
        if len(self._logged) <= _MOST:
            self._logged[id] = None

    def annotated(self, id: str) -> None:
        if id not in self._logged and len(self._annotated) <= _MOST:
            self._annotated[id] = None

    def count(self, directory: Path, writer: str) -> int:
        """At least so many rollouts have facts and were never logged. 0 if it cannot be known:
        others are still writing, or there were too many."""
        unknown = sum(id not in self._logged for id in list(self._annotated))
        if not unknown or max(len(self._logged), len(self._annotated)) > _MOST:
            return 0
        others = [info for name, info in read_infos(directory).items() if name != writer]
        if any(info.finished is None for info in others):
            return 0
        theirs = sum(info.counters.recorded + info.counters.sampled_out for info in others)
        return max(unknown - theirs, 0)
