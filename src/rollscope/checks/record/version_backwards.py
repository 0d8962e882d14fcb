"""Later tokens were drawn by older weights."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import conversation
from ..check import Spot, check
from ..evidence import stream
from ..subject import OneRollout


@check(
    "version.backwards",
    kind="record",
    means="Versions of the weights go back inside a rollout: they are mixed up, or an engine was "
    "not updated.",
    source="ours; AReaL and prime-rl stamp every token",
    needs=[stream("version")],
)
def backwards(one: OneRollout) -> Iterator[Spot]:
    newest: list[int | None] = []
    streams = {drawn.n: values for drawn, values in one.streams("version")}
    for n, message in enumerate(one.messages):
        parent = conversation.parent_of(n, message)
        last = newest[parent] if parent >= 0 else None
        for i, version in enumerate(streams.get(n, ())):
            if version is None or version < 0:  # -1: nobody knows
                continue
            if last is not None and version < last:
                yield Spot(
                    f"version {version} follows version {last}",
                    message=n, tokens=(i, i + 1), value=version - last,
                )  # fmt: skip
                return
            last = version
        newest.append(last)
