"""How rollouts leave the store: whole, in order, batch by batch, redacted on request.

Exports to files and sinks take their rollouts from here, so that nothing gets out by another way.
Bundles hold answers of the server; they are redacted by the same `Cleaner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from ...model import Rollout
from ...model.cleaner import Cleaner
from .bodies import StoredRollout
from .reader import Reader

_TARGET = 16 << 20
"""Characters of one batch, about. Memory holds a few times that, or one rollout."""
_MOST = 256


def outgoing(
    reader: Reader,
    ids: Iterable[str],
    cleaner: Cleaner | None = None,
    *,
    has_tags: bool = True,
    batch: int = 8,
) -> Iterator[StoredRollout]:
    """Whole rollouts in the order of the ids, without those that have gone by now.

    `has_tags` puts people's labels and checks' flags into `meta`, for targets that take only
    rollouts. `batch` is the size of the first batch. The length of a rollout is known only after
    reading it, so each later batch is sized by the one before, and at most doubles.
    """
    left = iter(ids)
    while some := list(islice(left, batch)):
        found = reader.get_many(some)
        for stored in found:
            if has_tags:
                stored.rollout = _tagged(stored)
            if cleaner is not None:
                stored.rollout = cleaner.rollout(stored.rollout)
            yield stored
        fit = _TARGET // max(1, sum(stored.size for stored in found) // max(1, len(found)))
        batch = max(1, min(2 * batch, fit, _MOST))


def _tagged(stored: StoredRollout) -> Rollout:
    rollout = stored.rollout
    tags = {"labels": stored.labels, "flags": stored.flags}
    new = {name: has for name, has in tags.items() if has and name not in rollout.meta}
    return msgspec.structs.replace(rollout, meta={**rollout.meta, **new}) if new else rollout
