"""Numbers over steps, seen as they came: what is said of a step depends on no later one.

So an alarm keeps its step when the run goes on. An alarm is told at its onset, and again only
after the trouble was gone for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from statistics import fmean, pstdev
from typing import NamedTuple

EARLY = 10
"""Steps that a run is held against: its own start. rewardspy takes as many records."""

RECENT = 5
"""Steps of which the mean is judged: one alone is noise."""

REST = 10
"""Steps without trouble after which it is news again."""

Series = Sequence[tuple[int, float]]
"""A number over the steps."""


class Share(NamedTuple):
    """So many of so many, at a step."""

    step: int
    some: float
    of: float


class Window(NamedTuple):
    """Some steps up to one."""

    first: int
    step: int
    """The last."""
    value: float
    of: float = 0.0
    """Of a share: of how many."""

    @property
    def steps(self) -> str:
        """As a term of a query."""
        return f"step:{self.first}..{self.step}"


class Line:
    """The straight line through numbers of successive steps; how far off the next may be."""

    def __init__(self, values: Sequence[float]) -> None:
        self._size = len(values)
        self._middle = (self._size - 1) / 2
        self._mean = fmean(values)
        places = [at - self._middle for at in range(self._size)]
        self._square = sum(place**2 for place in places)
        self._rise = sum(p * v for p, v in zip(places, values, strict=True)) / self._square
        off = sum((v - self._at(n)) ** 2 for n, v in enumerate(values))
        self._off = sqrt(off / (self._size - 2))

    def _at(self, place: int) -> float:
        return self._mean + self._rise * (place - self._middle)

    @property
    def end(self) -> float:
        return self._at(self._size - 1)

    def next(self, later: int = 0) -> float:
        """What the line expects after the last number, or so many steps later."""
        return self._at(self._size + later)

    def error(self, noise: float, later: int = 0) -> float:
        """Standard deviation of what comes there; a number alone has at least `noise`."""
        far = (self._size + later - self._middle) ** 2 / self._square
        return max(self._off, noise) * sqrt(1 + 1 / self._size + far)


def start(series: Series) -> tuple[float, float]:
    """Mean and deviation of the first steps."""
    values = [value for _, value in series[:EARLY]]
    return fmean(values), pstdev(values)


def recent(series: Series, size: int = RECENT) -> Iterator[Window]:
    """The mean of the last steps, at each step after the run's start."""
    for at in range(EARLY + size, len(series) + 1):
        seen = series[at - size : at]
        yield Window(seen[0][0], seen[-1][0], fmean(value for _, value in seen))


def shares(series: Sequence[Share], least: float, size: int = RECENT) -> Iterator[Window]:
    """The share of the last steps, at each step, where they have at least so many of them."""
    for at in range(len(series)):
        first = at
        of = series[at].of
        while first > 0 and (of < least or at - first + 1 < size):
            first -= 1
            of += series[first].of
        if of >= least:
            seen = series[first : at + 1]
            yield Window(seen[0].step, seen[-1].step, sum(s.some for s in seen) / of, of)


def risen(windows: Sequence[Window], least: float, sigmas: float) -> Iterator[tuple[Window, float]]:
    """Shares that are large, and more than chance explains above the first; with that first."""
    early = windows[0] if windows else Window(0, 0, 0.0)

    def is_high(window: Window) -> bool:
        both = early.of + window.of
        mean = (early.value * early.of + window.value * window.of) / both
        noise = sqrt(mean * (1 - mean) * (1 / early.of + 1 / window.of))
        return window.value >= least and window.value - early.value > sigmas * noise

    later = [window for window in windows[1:] if window.first > early.step]
    for window in onsets((window, is_high(window)) for window in later):
        yield window, early.value


def onsets(seen: Iterable[tuple[Window, bool]]) -> Iterator[Window]:
    """Where trouble begins."""
    quiet = REST
    for window, is_bad in seen:
        if is_bad and quiet >= REST:
            yield window
        quiet = 0 if is_bad else quiet + 1
