"""Text terms: what of a message is searched, and how.

We search a message's text, the arguments of its tool calls, and other content of its parts (tool
results that are not text). Arguments and parts are JSON. They are searched as they were written,
and each text inside them is also searched unescaped, even if arguments are a string that holds
JSON. So `print("hi")` is found in `{"code":"print(\\"hi\\")"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rollscope.model import Message, conversation
from rollscope.model.chat import as_text

from .sql import Sql, all_of, any_of
from .values import Text


class TextTerm(NamedTuple):
    """A text to be found in the messages of one role (None: of all)."""

    role: str | None
    test: Text | None
    """None: any message of that role will do."""


def contains(value: Sql, test: Text) -> Sql:
    """Is the text found inside the value? (`ilike` and `lower` take twice as long as RE2.)"""
    if test.kind == "exact":
        return Sql("contains({}, ?)", (test.text,)).fill(value)
    return Sql("regexp_matches({}, ?)", (pattern(test),)).fill(value)


def pattern(test: Text) -> str:
    """The RE2 pattern that finds the text."""
    if test.kind == "regex":
        return test.text
    fold = "(?i)" if test.kind == "fold" else ""
    return fold + re.sub(r"[^A-Za-z0-9_\x80-\U0010ffff]", _escaped, test.text)


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    return f"\\{char}" if char.isprintable() else f"\\x{{{ord(char):x}}}"


_WRITTEN = """list_concat(
    json_extract_string(m.tool_calls, '$[*].arguments'),
    json_extract_string(m.parts, '$[*].call.arguments'),
    json_extract_string(m.parts, '$[*].data'))"""

_UNESCAPED = f"""flatten(list_transform({_WRITTEN}, lambda w: CASE WHEN json_valid(w) THEN
    list_transform(list_filter(json_extract(w, '$.**'), lambda v: json_type(v) = 'VARCHAR'),
                   lambda v: v ->> '$') END))"""

_SAFE = re.compile(r"[A-Za-z0-9_ .,:;=+*#@!?%$|~^()\[\]{}-]*")
"""Texts that JSON writes as they are, unless somebody spelled them out as `\\u....`."""


def message_has(term: TextTerm) -> Sql:
    """Does message `m` contain it?"""
    parts = _in_role(term)
    if term.test is not None:
        inside = Sql(f"len(list_filter(list_concat({_WRITTEN}, {_UNESCAPED}), lambda x: {{}})) > 0")
        looked = Sql("CASE WHEN {} THEN {} ELSE FALSE END").fill(
            _json_may_have(term.test), inside.fill(contains(Sql("x"), term.test))
        )
        parts.append(any_of((contains(Sql("m.text"), term.test), looked)))
    return all_of(parts)


def message_may_have(term: TextTerm) -> Sql:
    """The same, but JSON is only searched as it was written. It costs less and holds for a few
    more."""
    parts = _in_role(term)
    if term.test is not None:
        parts.append(any_of((contains(Sql("m.text"), term.test), _json_may_have(term.test))))
    return all_of(parts)


def _in_role(term: TextTerm) -> list[Sql]:
    return [] if term.role is None else [Sql("m.role = ?", (term.role,))]


def _json_may_have(test: Text) -> Sql:
    return any_of(_may_hold(column, test) for column in ("m.tool_calls", "m.parts"))


def _may_hold(column: str, test: Text) -> Sql:
    """A cheap look at the JSON as it lies, before it is taken apart."""
    there = Sql(f"{column} IS NOT NULL")
    if test.kind == "regex" or not _SAFE.fullmatch(test.text):
        return there
    spelled = Sql(f"contains({column}::VARCHAR, ?)", ("\\u",))
    return all_of((there, any_of((contains(Sql(f"{column}::VARCHAR"), test), spelled))))


def searched(message: Message) -> Iterator[str]:
    """The texts of a message that `message_has` looks at, for a search without the engine."""
    if message.content is not None:
        yield conversation.text(message)
    parts = message.content if isinstance(message.content, list) else ()
    written = [call.arguments for call in conversation.tool_calls(message)]
    for value in (*written, *(part.data for part in parts)):
        if value is None:
            continue
        text = as_text(value)
        yield text
        try:
            inside = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if not isinstance(inside, str):
            yield from _leaves(inside)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
