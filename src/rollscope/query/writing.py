"""When each message of a rollout was written, and by which versions of the policy."""

from __future__ import annotations

import msgspec

from rollscope.model import Rollout
from rollscope.model.conversation import BY_POLICY, by_policy
from rollscope.model.tokens import to_list

from .engine import Engine
from .sql import Sql


class Written(msgspec.Struct, frozen=True):
    """One message as a stretch of time."""

    message: int
    name: str | None
    sampled: bool
    """Did the policy write it?"""
    start: float | None
    end: float | None
    versions: list[int]
    """Versions of the policy that wrote it, in order."""


_WRITTEN = f"""SELECT n, any_value(name), any_value({BY_POLICY}),
    any_value(start), any_value("end"),
    list_filter(list_sort(list_distinct(flatten(list(version)))), lambda v: v IS NOT NULL)
    FROM messages WHERE rollout = ? GROUP BY n ORDER BY n"""


def written(engine: Engine, id: str) -> list[Written]:
    """Every message, without reading its text. Versions that became known late are left out."""
    return [Written(*row) for row in engine.rows(Sql(_WRITTEN, (id,)))]


def written_of(rollout: Rollout) -> list[Written]:
    """The same of a rollout that was read whole, late versions included."""
    found = []
    for n, m in enumerate(rollout.messages):
        stream = m.tokens.streams.get("version") if m.tokens is not None else None
        known = [v for v in to_list(stream, True) if v is not None] if stream is not None else []
        versions = list(dict.fromkeys(known))
        found.append(Written(n, m.name, by_policy(m), m.start, m.end, versions))
    return found
