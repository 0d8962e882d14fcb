"""It calls a tool with arguments that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..check import Spot, check
from ..evidence import CALLS
from ..subject import Call, OneRollout
from ..tools import required


@check(
    "tool.malformed",
    kind="behaviour",
    means="The arguments of a call are cut or lack what the tool needs: the call can only fail.",
    source="ours; schemas as OpenAI's API has them",
    needs=[CALLS],
)
def malformed(one: OneRollout) -> Iterator[Spot]:
    for call in one.calls:
        wrong = _wrong(one, call)
        if wrong is not None:
            yield Spot(f"{call.name or 'a tool'}: {wrong}", message=call.n)


def _wrong(one: OneRollout, call: Call) -> str | None:
    raw = call.call.arguments
    # Some trainers hand plain words over; what begins like an object means to be one.
    if call.arguments is None and isinstance(raw, str) and raw.lstrip().startswith(("{", "[")):
        return f"its arguments are no JSON: {raw[:60]!r}"
    schema = one.tools.get(call.name) if one.tools else None
    if schema is None or not isinstance(call.arguments, Mapping):
        return None
    lacking = [name for name in required(schema) if name not in call.arguments]
    return f"it lacks the argument {', '.join(map(repr, lacking))}" if lacking else None
