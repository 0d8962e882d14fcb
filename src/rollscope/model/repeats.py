"""Arguments that repeat those of an earlier call.

An agent passes its whole history to every call. Written out, the hundredth turn would take a
hundred times the room of the first. So if a list begins like the same argument of the previous span
of the same name, it is stored as

    {"same_as": "<span id>", "first": 14, "then": [...]}

the first 14 items of that span's list, then these. `expand` undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import msgspec

from .records import Span

FEWEST = 4
"""Shorter beginnings are written out."""


def shared(values: Any, before: Sequence[Any]) -> int:
    """How many items at the beginning of `values` (a list or tuple) equal those of `before`."""
    end = min(len(values), len(before))
    if list(values[:end]) == before[:end]:  # the usual case, and much faster than one by one
        return end
    for n in range(end):
        if values[n] != before[n]:
            return n
    return end


def repeat(span: str, first: int, then: list[Any]) -> dict[str, Any]:
    """The stored form of a list that goes on from another span's."""
    return {"same_as": span, "first": first, "then": then}


def expand(spans: list[Span]) -> list[Span]:
    """The spans of a rollout with every argument written out, as far as possible."""
    inputs: dict[str, dict[str, Any]] = {}
    for span in spans:
        if span.id is not None and isinstance(span.inputs, dict):
            inputs[span.id] = dict(span.inputs)

    def whole(span: str, name: str) -> Any:
        chain = []
        value = inputs.get(span, {}).get(name)
        while _is_repeat(value):
            chain.append((span, value))
            span = value["same_as"]
            value = inputs.get(span, {}).get(name)
        for owner, link in reversed(chain):
            if not isinstance(value, list) or len(value) < link["first"]:
                return inputs[chain[0][0]][name]
            value = value[: link["first"]] + link["then"]
            inputs[owner][name] = value
        return value

    for id, names in inputs.items():
        for name in list(names):
            names[name] = whole(id, name)
    return [
        msgspec.structs.replace(span, inputs=inputs[str(span.id)]) if _has_repeat(span) else span
        for span in spans
    ]


def _has_repeat(span: Span) -> bool:
    """Is there anything to write out? (Others stay: two spans may have the same id.)"""
    if span.id is None or not isinstance(span.inputs, dict):
        return False
    return any(map(_is_repeat, span.inputs.values()))


def _is_repeat(value: Any) -> TypeGuard[dict[str, Any]]:
    return (
        isinstance(value, dict)
        and value.keys() == {"same_as", "first", "then"}
        and isinstance(value["first"], int)
        and isinstance(value["then"], list)
    )
