"""Through a whole selection, every rollout with its messages, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollscope.store.read.bodies import StoredRollout
    from rollscope.store.read.reader import Reader

_TARGET = 16 << 20
"""Characters of one batch, about. Memory holds a few times that, or one rollout."""
_MOST = 256


def walk(reader: Reader, ids: Iterable[str]) -> Iterator[StoredRollout]:
    """Whole rollouts in the order of the ids, without those that have gone by now.

    The length of a rollout is known only after reading it, so each batch is sized by the one
    before. It begins small and at most doubles.
    """
    left, size = iter(ids), 8
    while batch := list(islice(left, size)):
        found = reader.get_many(batch)
        yield from found
        fit = _TARGET // max(1, sum(whole.size for whole in found) // max(1, len(found)))
        size = max(1, min(2 * size, fit, _MOST))
