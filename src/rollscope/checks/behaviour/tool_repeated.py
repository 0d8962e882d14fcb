"""The same call again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from ..check import Spot, check
from ..evidence import CALLS
from ..subject import Call, OneRollout


@check(
    "tool.repeated",
    kind="behaviour",
    means="The policy makes the same call again and again and gets the same answer: it does not "
    "move.",
    source="ours",
    needs=[CALLS],
)
def repeated(
    one: OneRollout,
    *,
    times: Annotated[int, "equal calls with equal answers, in a row; ours"] = 4,
) -> Iterator[Spot]:
    run: list[Call] = []
    for call in [*one.calls, None]:
        if call is not None and (not run or _same(run[-1], call)):
            run.append(call)
            continue
        if len(run) >= times:
            yield Spot(f"{run[0].name or 'a tool'} is called {len(run)} times with the same "
                       "arguments, and says the same",
                       message=run[-1].n, value=len(run))  # fmt: skip
        run = [] if call is None else [call]


def _same(a: Call, b: Call) -> bool:
    return a.name == b.name and a.said == b.said and _key(a) == _key(b)


def _key(call: Call) -> bytes:
    return msgspec.json.encode([call.call.arguments, call.arguments], order="sorted")
