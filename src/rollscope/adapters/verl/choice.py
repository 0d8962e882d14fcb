"""Which groups of a legacy batch a count keeps. The workers decide alike without talking.

verl repeats each prompt n times in a row and cuts the batch into equal shares, one for each
worker; a share may begin or end in the middle of a group. A group belongs to the worker that
has its first row. Every worker knows the numbers of its rows, so it also knows which groups
belong to the workers before it, and all choose alike for a group that lies on several.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.sample import Sample, draw

_REMEMBERED = 64  # (step, split) pairs whose counts are kept in mind


class Choice:
    """Applies a `Sample` to the shares of one worker, step by step and split by split."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int | None, str], dict[int, int]] = {}
        """By step and split: how many groups each worker has kept until now."""

    def rows(
        self, rows: Sequence[int], n: int, sample: Sample, step: int | None, split: str
    ) -> list[bool] | None:
        """For each row of the share: is its group kept? `rows` are their numbers in the whole
        batch, and n is the size of a group. None if the choice needs no knowledge of others (a
        fraction), or if verl did not cut the share."""
        room = _room(sample, n)
        share = len(rows)
        if room is None or rows[0] % share or list(rows) != list(range(rows[0], rows[0] + share)):
            return None
        kept = self._kept.setdefault((step, split), {})
        while len(self._kept) > _REMEMBERED:
            del self._kept[next(iter(self._kept))]
        chosen: set[int] = set()
        for owner in range(rows[0] // share + 1):
            groups = sorted(
                _begun_in(owner, share, n), key=lambda group: draw(sample.seed, step, str(group))
            )[: room - kept.get(owner, 0)]
            kept[owner] = kept.get(owner, 0) + len(groups)
            chosen |= set(groups)
        return [row // n in chosen for row in rows]


def _room(sample: Sample, n: int) -> int | None:
    """How many groups a worker may keep at a step. None if there is no count."""
    if n < 1:
        return None
    counts = [] if sample.groups_per_step is None else [sample.groups_per_step]
    if sample.rollouts_per_step is not None:
        counts.append(-(-sample.rollouts_per_step // n))  # whole groups win over the count
    return min(counts, default=None)


def _begun_in(owner: int, share: int, n: int) -> range:
    """The groups whose first row is in this worker's share."""
    return range(-(-owner * share // n), -(-(owner + 1) * share // n))
