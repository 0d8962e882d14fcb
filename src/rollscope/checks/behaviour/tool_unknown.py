"""It calls a tool that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ..check import Spot, check
from ..evidence import CALLS, TOOLS
from ..subject import OneRollout


@check(
    "tool.unknown",
    kind="behaviour",
    means="The policy calls a tool that it was not given: it makes tools up, or the record of the "
    "tools is incomplete.",
    source="ours",
    needs=[CALLS, TOOLS],
)
def unknown(one: OneRollout) -> Iterator[Spot]:
    for call in one.calls:
        if call.name and call.name not in one.tools:
            near = difflib.get_close_matches(call.name, one.tools, n=1)
            hint = f"; {near[0]!r} is" if near else ""
            yield Spot(f"{call.name!r} is none of its {len(one.tools)} tools{hint}", message=call.n)
