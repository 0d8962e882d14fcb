"""Late facts: what they are called and how they are folded into a rollout.

| name | value |
|---|---|
| a field that `schema` calls late: `reward`, `advantage`, `fate`, `error`, ... | that field |
| `<field>.<key>` of a late dict: `rewards.<part>`, `meta.<key>` | one entry of it |
| `tokens.<stream>` | `stream`: one number per token |
| `label.<tag>` | true, or false to take it back; `author` says whose |
| `flag.<check>` | a check's finding: true or its evidence |
| `note` | a person's words |

For each (name, message) the last fact by (time, writer, n) wins. Any fact wins over the
rollout's own value. Null never overrides. `fate`: the furthest along wins, then the latest.

A fact with a `message` is a fact of that message and of nothing else: `reward`, `stop_reason`,
`end` and `meta.<key>` are its fields of these names, and what a message has no field for stands in
its `meta` under the fact's name. Only labels and flags count for the rollout, too.

A value that its field cannot hold is no fact: it is left out, and an earlier one that fits holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from .records import Error, Fact, Message, Rollout
from .schema import MESSAGES, ROLLOUTS
from .tokens import Tokens, is_int, to_list

FATE_RANK = {
    "generated": 0,
    "scored": 1,
    "trained": 2,
    "dropped": 2,
    "masked": 2,
    "rejected": 2,
    "failed": 2,
}
"""How far along each fate is. An unknown word ranks with the ends."""

_LATE = [column for column in ROLLOUTS if column.late]

FIELD_FACTS = tuple(
    dict.fromkeys(
        "error" if column.source == "error" else column.name
        for column in _LATE
        if not column.is_dict
    )
)
"""Fields of a rollout that a fact of the same name replaces."""

DICT_FACTS = tuple(column.name for column in _LATE if column.is_dict)
"""Fields of which a fact `<field>.<key>` replaces one entry."""

SET_FACTS = {column.one: column.name for column in ROLLOUTS if column.source == "facts"}
"""Facts that are collected: `label.<tag>`, `flag.<check>`."""

_TYPES = {column.name: column.type for column in _LATE} | {"error": "ERROR"}

_OF_MESSAGE = tuple(c.name for c in MESSAGES if c.name in FIELD_FACTS and _TYPES[c.name] == c.type)
"""Fields that a message has as well."""

NUMBER = r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|NaN|-?Infinity"
"""What a text says that stands for a number."""

TRUTHS = {"true": True, "1": True, "false": False, "0": False}
"""Texts that say yes or no."""


def type_of(name: str) -> str:
    """The engine's type of what a fact of this name is about; `ERROR`: an `Error`."""
    head, _, key = name.partition(".")
    if name in FIELD_FACTS:
        return _TYPES[name]
    if head in DICT_FACTS and key:
        return _TYPES[head].removeprefix("MAP(VARCHAR, ").removesuffix(")")
    return "JSON"


def value_of(fact: Fact) -> Any:
    """The value of a fact as its field holds it; None: it says nothing, or its field cannot hold
    it."""
    return None if fact.value is None else _held(fact.value, type_of(fact.name))


def _held(value: Any, type: str) -> Any:
    if type == "JSON":
        return value
    if type == "ERROR":
        value = value if isinstance(value, dict) else {}
        said = {
            name: value[name] for name in Error.__struct_fields__ if value.get(name) is not None
        }
        return Error(**{name: _text(part) for name, part in said.items()}) if said else None
    text = _text(value)
    if type == "VARCHAR":
        return text
    if type == "BOOLEAN":
        return TRUTHS.get(text)
    text = str(int(TRUTHS[text])) if text in TRUTHS else text
    if not re.fullmatch(NUMBER, text):
        return None
    number = float(text)
    if type == "DOUBLE":
        return number
    if not math.isfinite(number) or number != math.floor(number):
        return None
    whole = int(text) if re.fullmatch("-?[0-9]+", text) else int(number)
    return whole if -(2**63) <= whole < 2**63 else None


def _text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def fate_rank(fate: str | None) -> int:
    return -1 if fate is None else FATE_RANK.get(fate, 2)


def winners(facts: Iterable[tuple[Fact, str]], own_fate: str | None = None) -> Iterator[Fact]:
    """The facts that hold, of (fact, writer) pairs in any order, with the values that their fields
    hold. Pure, and order-free."""
    best: dict[tuple[str, int | None], tuple[tuple[Any, ...], Fact]] = {}
    for fact, writer in facts:
        value = value_of(fact)
        if value is None and fact.stream is None:
            continue
        rank: tuple[Any, ...] = (fact.time or 0.0, writer, fact.n or 0)
        if fact.name == "fate":
            rank = (fate_rank(value), *rank)
            if fact.message is None and rank[0] < fate_rank(own_fate):
                continue
        slot = (fact.name, fact.message)
        if slot not in best or best[slot][0] < rank:
            best[slot] = (rank, msgspec.structs.replace(fact, value=value))
    for slot in sorted(best, key=lambda s: (s[0], -1 if s[1] is None else s[1])):
        yield best[slot][1]


def fold(rollout: Rollout, facts: Iterable[tuple[Fact, str]]) -> Rollout:
    """A copy of the rollout as the facts say it is. Labels and flags are read by `tags`."""
    changes: dict[str, Any] = {}
    held = list(winners(facts, rollout.fate))
    for fact in held:
        head, _, key = fact.name.partition(".")
        if fact.message is not None:
            continue
        if fact.name in FIELD_FACTS:
            changes[fact.name] = fact.value
        elif head in DICT_FACTS and key and isinstance(getattr(rollout, head), dict):
            changes.setdefault(head, dict(getattr(rollout, head)))[key] = fact.value
    messages = dict(enumerate(rollout.messages))
    lengths = {n: len(m.tokens) for n, m in messages.items() if m.tokens is not None}
    lay(messages, held, lengths)
    return msgspec.structs.replace(rollout, **changes, messages=list(messages.values()))


def tags(facts: Iterable[tuple[Fact, str]], kind: str) -> list[str]:
    """The labels (`kind="label"`) or flags (`kind="flag"`) that hold, sorted."""
    return sorted(
        {
            fact.name.partition(".")[2]
            for fact in winners(facts)
            if fact.name.startswith(kind + ".") and fact.value is not False
        }
    )


def lay(messages: dict[int, Message], held: Iterable[Fact], lengths: Mapping[int, int]) -> None:
    """Lay what `winners` say about single messages, and late streams, over these messages.

    `messages` may be some of the rollout's; `lengths` has the count of tokens of each that has any.
    """
    for fact in held:
        head, _, key = fact.name.partition(".")
        if fact.stream is not None:
            if head == "tokens" and key:
                _lay_stream(messages, key, fact, lengths)
        elif fact.message in messages and head not in SET_FACTS and fact.name != "note":
            messages[fact.message] = _with_fact(messages[fact.message], fact)


def _with_fact(message: Message, fact: Fact) -> Message:
    if fact.name in _OF_MESSAGE:
        return msgspec.structs.replace(message, **{fact.name: fact.value})
    meta: Any = message.meta
    if not isinstance(meta, dict):
        return message
    value = msgspec.to_builtins(fact.value)
    entry = {fact.name.removeprefix("meta."): value}
    return msgspec.structs.replace(message, meta={**meta, **entry})


def _lay_stream(
    messages: dict[int, Message], name: str, fact: Fact, lengths: Mapping[int, int]
) -> None:
    """One that does not fit is left out: cut or padded it would shift every value."""
    chosen = sorted(n for n in lengths if fact.message is None or fact.message == n)
    values, at = fact.stream, 0
    if sum(lengths[n] for n in chosen) != len(values):
        return
    if is_int(name) and any(v is not None and v - v != 0 for v in values):
        return
    for n in chosen:
        piece, at = values[at : at + lengths[n]], at + lengths[n]
        old = messages[n].tokens if n in messages else None
        if old is None or (len(piece) and all(v is None for v in piece)):
            continue
        streams = {**old.streams, name: to_list(piece, is_int(name))}
        tokens = Tokens(old.ids, old.ends, streams)
        messages[n] = msgspec.structs.replace(messages[n], tokens=tokens)
