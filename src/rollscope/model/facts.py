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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .records import Error, Fact, Message, Rollout
from .schema import ROLLOUTS
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


def fate_rank(fate: str | None) -> int:
    return -1 if fate is None else FATE_RANK.get(fate, 2)


def winners(facts: Iterable[tuple[Fact, str]], own_fate: str | None = None) -> Iterator[Fact]:
    """The facts that hold, of (fact, writer) pairs in any order. Pure, and order-free."""
    best: dict[tuple[str, int | None], tuple[tuple[Any, ...], Fact]] = {}
    for fact, writer in facts:
        if fact.value is None and fact.stream is None:
            continue
        rank: tuple[Any, ...] = (fact.time or 0.0, writer, fact.n or 0)
        if fact.name == "fate":
            rank = (fate_rank(fact.value), *rank)
            if rank[0] < fate_rank(own_fate):
                continue
        slot = (fact.name, fact.message)
        if slot not in best or best[slot][0] < rank:
            best[slot] = (rank, fact)
    for slot in sorted(best, key=lambda s: (s[0], -1 if s[1] is None else s[1])):
        yield best[slot][1]


def fold(rollout: Rollout, facts: Iterable[tuple[Fact, str]]) -> Rollout:
    """A copy of the rollout as the facts say it is. Labels and flags are read by `tags`."""
    changes: dict[str, Any] = {}
    messages: list[Message] | None = None
    for fact in winners(facts, rollout.fate):
        head, _, key = fact.name.partition(".")
        if fact.name in FIELD_FACTS and fact.message is None:
            changes[fact.name] = (
                msgspec.convert(fact.value, Error) if fact.name == "error" else fact.value
            )
        elif head in DICT_FACTS and key:
            changes.setdefault(head, dict(getattr(rollout, head)))[key] = fact.value
        elif head == "tokens" and key and fact.stream is not None:
            messages = _with_stream(messages or list(rollout.messages), key, fact)
    if messages is not None:
        changes["messages"] = messages
    return msgspec.structs.replace(rollout, **changes)


def tags(facts: Iterable[tuple[Fact, str]], kind: str) -> list[str]:
    """The labels (`kind="label"`) or flags (`kind="flag"`) that hold, sorted."""
    return sorted(
        {
            fact.name.partition(".")[2]
            for fact in winners(facts)
            if fact.name.startswith(kind + ".") and fact.value is not False
        }
    )


def _with_stream(messages: list[Message], name: str, fact: Fact) -> list[Message]:
    """Lay a stream over the tokens it is about; one of the wrong length is left out.

    A length that does not fit is never cut or padded: that would shift every value.
    """
    values = to_list(fact.stream, is_int(name))
    chosen = [
        i
        for i, m in enumerate(messages)
        if m.tokens is not None and (fact.message is None or fact.message == i)
    ]
    lengths = [len(m.tokens) for m in messages if m.tokens is not None]
    if fact.message is not None:
        lengths = [len(messages[i].tokens or ()) for i in chosen]
    if sum(lengths) != len(values):
        return messages
    at = 0
    for i, length in zip(chosen, lengths, strict=True):
        piece, at = values[at : at + length], at + length
        old = messages[i].tokens
        if old is None or (piece and all(v is None for v in piece)):
            continue
        tokens = Tokens(old.ids, old.ends, {**old.streams, name: piece})
        messages[i] = msgspec.structs.replace(messages[i], tokens=tokens)
    return messages
