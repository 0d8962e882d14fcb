"""What two sequences have in common, found within a number of steps.

Two siblings share most of their text, or next to none. Myers' search is fast for the first: its
cost grows with the differences, not with the length. For the second it would take minutes. So units
that stand once on either side are tried as anchors, and in the end the search gives up and says so.
Steps are counted, not timed: the same two texts give the same answer on every machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Block = tuple[int, int, int]
"""Where equal units begin on either side, and how many there are."""

_CHEAP = 200
"""So many differences are searched for before anchors are tried (10 ms)."""

_DEEPEST = 40
"""Anchors between anchors between anchors: beyond this the rest is searched without."""


class Steps:
    """How much searching is left. A million take half a second."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.ran_out = False


def matching(a: Sequence[Any], b: Sequence[Any], steps: Steps, depth: int = 0) -> Iterator[Block]:
    """Equal blocks, in order. Where the steps ran out, only equal beginnings and ends."""
    start = common_prefix(a, b)
    if start:
        yield 0, 0, start
    a, b = a[start:], b[start:]
    end = common_prefix(a[::-1], b[::-1])
    x, y = len(a) - end, len(b) - end
    if x and y:
        yield from _moved(_middle(a[:x], b[:y], steps, depth), start, start)
    if end:
        yield start + x, start + y, end


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the shared beginning, found by halving: no loop over items."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _moved(blocks: Iterator[Block], by_a: int, by_b: int) -> Iterator[Block]:
    return ((i + by_a, j + by_b, n) for i, j, n in blocks)


def _middle(a: Sequence[Any], b: Sequence[Any], steps: Steps, depth: int) -> Iterator[Block]:
    """Neither begins nor ends like the other."""
    found = _myers(a, b, _CHEAP, steps)
    anchors = _anchors(a, b) if found is None and depth < _DEEPEST else []
    if found is None and not anchors:
        found = _myers(a, b, len(a) + len(b), steps)
    if found is not None:
        yield from found
        return
    steps.ran_out = steps.ran_out or not anchors
    at = (0, 0)
    for i, j in anchors:
        yield from _moved(matching(a[at[0] : i], b[at[1] : j], steps, depth + 1), *at)
        yield i, j, 1
        at = (i + 1, j + 1)
    if anchors:
        yield from _moved(matching(a[at[0] :], b[at[1] :], steps, depth + 1), *at)


def _myers(a: Sequence[Any], b: Sequence[Any], most: int, steps: Steps) -> list[Block] | None:
    """The longest common subsequence, if `most` differences lead there and the steps suffice."""
    n, m = len(a), len(b)
    most = min(most, n + m)
    furthest = [0] * (2 * most + 3)  # by diagonal; the places before the first are at the end
    trace: list[list[int]] = []
    for d in range(most + 1):
        if steps.left <= 0:
            return None
        walked = d + 1
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            begun = x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            walked += x - begun
            furthest[k] = x
            if x >= n and y >= m:
                return _way_back(trace, n, m)
        steps.left -= walked
        trace.append(furthest[: d + 1] + furthest[len(furthest) - d :])
    return None


def _way_back(trace: list[list[int]], x: int, y: int) -> list[Block]:
    """The blocks on the way that the search took; `trace[d]` has diagonals 0…d and -d…-1."""
    blocks: list[Block] = []
    for d in range(len(trace), 0, -1):
        furthest, k = trace[d - 1], x - y
        reach = range(-d + 1, d)
        left = furthest[k - 1] if k - 1 in reach else -1
        above = furthest[k + 1] if k + 1 in reach else -1
        down = k == -d or (k != d and left < above)
        before = above if down else left
        landed = before if down else before + 1
        if x > landed:
            blocks.append((landed, landed - k, x - landed))
        x, y = before, before - (k + 1 if down else k - 1)
    if x:
        blocks.append((0, 0, x))
    return blocks[::-1]


def _anchors(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[int, int]]:
    """The longest row of units that stand once in each, in the order of both."""
    in_a, in_b = Counter(a), Counter(b)
    places = {unit: j for j, unit in enumerate(b) if in_b[unit] == 1}
    pairs = [(i, places[u]) for i, u in enumerate(a) if in_a[u] == 1 and u in places]
    ends: list[int] = []  # the smallest place that a row of each length ends with
    last: list[int] = []  # the pair it is
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [number]
    row = []
    at = last[-1] if last else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]
