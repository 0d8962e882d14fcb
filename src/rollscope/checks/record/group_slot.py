"""Two siblings in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..subject import OneGroup

_AGAIN = ("dropped", "rejected", "failed")
"""Fates after which another rollout may take the place."""

_PLACES = Evidence(
    "the places of two siblings",
    lambda group: sum(member.row["index"] is not None for member in group.members) > 1,
)


@check(
    "group.slot",
    version=2,
    kind="record",
    subject="group",
    means="Two rollouts have the same place in their group: one was recorded or trained twice.",
    source="NeMo Gym, `rollout_duplicate_identity`",
    needs=[_PLACES],
)
def slot(group: OneGroup) -> Iterator[Spot]:
    places = {
        member.id: (member.row["launch"], member.row["index"], member.row["attempt"])
        for member in group.members
        if member.row["index"] is not None and member.row["fate"] not in _AGAIN
    }
    taken = Counter(places.values())
    for id, place in places.items():
        if taken[place] > 1:
            text = f"{taken[place]} siblings have the index {place[1]}"
            yield Spot(text, rollout=id, value=taken[place])
