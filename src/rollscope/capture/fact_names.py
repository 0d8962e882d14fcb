"""The names that facts are stored under; see `model.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..model.facts import DICT_FACTS, FIELD_FACTS, SET_FACTS
from ..model.normalise import as_error
from .problems import report


def named_facts(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Facts by the names they are stored under. An unknown one is reported and left out."""
    named: list[tuple[str, Any]] = []
    for name, value in facts.items():
        head, dot, _ = name.partition(".")
        if value is None:
            continue
        if name in DICT_FACTS:
            named += [(f"{name}.{k}", v) for k, v in value.items() if v is not None]
        elif name in SET_FACTS or name in SET_FACTS.values():
            kind = name.removesuffix("s")
            tags = [value] if isinstance(value, str) else value
            evidence = tags if isinstance(tags, Mapping) else dict.fromkeys(tags, True)
            named += [(f"{kind}.{tag}", found) for tag, found in evidence.items()]
        elif name == "error":
            named.append((name, msgspec.to_builtins(as_error(value))))
        elif name in FIELD_FACTS or name == "note" or (dot and head in (*DICT_FACTS, *SET_FACTS)):
            named.append((name, value))
        else:
            known = ", ".join((*FIELD_FACTS, *DICT_FACTS, *SET_FACTS, "note", "streams"))
            report(
                "annotate",
                f"{name!r} is not known, so it was left out. Known facts: {known}. Use "
                f"meta={{{name!r}: ...}} for your own.",
            )
    return named
