"""Where the text terms of a query stand in one rollout: what is marked when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ..checks.align import plain_text
from ..model import Message, Rollout
from ..query import compile_query
from ..query.match import TextTerm
from ..query.values import Text
from .shapes import Hit

MOST = 2000


def find_hits(rollout: Rollout, q: str, find: str) -> list[Hit]:
    """Hits in the order of messages; no more than `MOST` of them."""
    terms = list(compile_query(q).terms)
    if find:
        terms.append(TextTerm(None, Text("fold", find)))
    patterns = [(term.role, pattern) for term in terms if (pattern := _pattern(term)) is not None]
    found: list[Hit] = []
    for n, message in enumerate(rollout.messages):
        here = {
            (hit.where, hit.start, hit.end): hit
            for role, pattern in patterns
            if role is None or role == message.role
            for hit in _in_message(n, message, pattern)
        }
        found += [here[place] for place in sorted(here)]
        if len(found) >= MOST:
            break
    return found[:MOST]


def _in_message(n: int, message: Message, pattern: re.Pattern[str]) -> Iterator[Hit]:
    for match in pattern.finditer(plain_text(message)):
        if match.end() > match.start():
            yield Hit(message=n, start=match.start(), end=match.end(), where="text")
    for call in message.tool_calls:
        arguments = call.arguments
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        for match in pattern.finditer(text):
            if match.end() > match.start():
                yield Hit(message=n, start=match.start(), end=match.end(), where="tool_calls")


def _pattern(term: TextTerm) -> re.Pattern[str] | None:
    """The term as Python finds it. The engine's RE2 knows a few forms that Python does not."""
    test = term.test
    if test is None or not test.text:
        return None
    try:
        if test.kind == "regex":
            return re.compile(test.text)
        return re.compile(re.escape(test.text), re.IGNORECASE if test.kind == "fold" else 0)
    except re.error:
        return None
