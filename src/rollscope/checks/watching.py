"""A run is watched while it goes on: alarms as they arise, each once.

Checks of steps look at the whole run whenever something has come to the store. That only reads, so
it needs no scan to be over and goes on while another process scans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..model import Finding
from ..query import Store
from ..query.runs import live
from .look import Panel
from .settings import Settings
from .stepped import alarms, look_at_steps
from .trend import REST
from .unlooked import Place

EVERY = 1.0
"""Seconds between two looks at what has come."""


class Watch:
    """What checks of steps say about one run, as news."""

    def __init__(self, store: Store, place: Place, settings: Settings) -> None:
        self.place = place
        self.told: list[Finding] = []
        """Every alarm so far, in the order in which they arose."""
        self.is_over = False
        """Does nobody write to the run any more?"""
        self._store = store
        self._settings = settings
        self._seen: tuple[int, bool] | None = None
        self._broken: set[str] = set()

    def look(self, broken: Callable[[str, str], None] = lambda id, error: None) -> list[Finding]:
        """Alarms that have not been told yet. `broken` hears of a check that raises, once."""
        self._store.refresh()
        self.is_over = self.place not in live(self._store.reader.writers())
        now = (self._store.version, self.is_over)
        if now == self._seen:
            return []
        self._seen = now
        panel = Panel(self._settings.bound(self.place[0]))
        looked = look_at_steps(self._store, self.place, panel, is_live=not self.is_over)
        for id, (error, *_) in panel.broken.items():
            if id not in self._broken:
                self._broken.add(id)
                broken(id, error)
        return list(self._news(alarms(looked)))

    def _news(self, found: list[Finding]) -> Iterator[Finding]:
        for alarm in found:
            if not any(_is_same(alarm, told) for told in self.told):
                self.told.append(alarm)
                yield alarm


def _is_same(alarm: Finding, told: Finding) -> bool:
    """Is it the same onset? What comes late may move it by a few steps."""
    return (
        (alarm.check, alarm.split, _about(alarm)) == (told.check, told.split, _about(told))
        and alarm.step is not None
        and told.step is not None
        and abs(alarm.step - told.step) < REST
    )


def _about(alarm: Finding) -> list[str]:
    """What it is about besides its steps: a kind of error."""
    return [term for term in (alarm.query or "").split() if not term.startswith("step:")]
