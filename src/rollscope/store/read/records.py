"""Rows of the tables become records of the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...model import Error, Fact, Message, Rollout, Span, Tokens
from ...model.schema import FIELDS, ROLLOUTS
from ...model.tokens import KNOWN_STREAMS
from ...model.wire import join_parts, to_call
from ..tables import StoredRow

_NAMES = [column.name for column in FIELDS]
_JSONS = [column.name for column in FIELDS if column.type == "JSON"]
_DICTS = [column.name for column in FIELDS if column.is_dict]

HEAD = tuple(column.name for column in ROLLOUTS if column.source in ("field", "error"))
"""The columns of a thin row that a rollout is made of; the others sum up its messages."""


def to_rollout(row: StoredRow, messages: list[Message], spans: list[Span]) -> Rollout:
    """A whole rollout out of the `HEAD` of its thin row and its bodies."""
    fields: dict[str, Any] = {name: row[name] for name in _NAMES}
    for name in _JSONS:
        fields[name] = from_json(fields[name])
    for name in _DICTS:
        fields[name] = {} if fields[name] is None else fields[name]
    return Rollout(**fields, messages=messages, spans=spans, error=_error(row))


def to_message(row: StoredRow) -> Message:
    number, parent = row["n"], row["parent"]
    if parent == number - 1 or (parent is None and number == 0):
        parent = None  # the one before it
    elif parent is None:
        parent = -1  # it begins a conversation of its own
    content: Any = row["text"]
    if row["parts"] is not None:
        content = join_parts(content or "", _listed(row["parts"]))
    return Message(
        role="unknown" if row["role"] is None else row["role"],
        content=content,
        parent=parent,
        name=row["name"],
        tool_calls=[to_call(call) for call in _listed(row["tool_calls"])],
        tool_call_id=row["tool_call_id"],
        sampled=row["sampled"],
        tokens=_tokens(row),
        stop_reason=row["stop_reason"],
        reward=row["reward"],
        state=from_json(row["state"]),
        start=row["start"],
        end=row["end"],
        meta=_mapping(from_json(row["meta"])),
    )


def to_span(row: StoredRow) -> Span:
    return Span(
        name=row["name"] or "",
        id=row["id"],
        parent=row["parent"],
        inputs=from_json(row["inputs"]),
        outputs=from_json(row["outputs"]),
        error=_error(row),
        start=row["start"],
        end=row["end"],
        message=row["message"],
        meta=_mapping(from_json(row["meta"])),
    )


def to_facts(rows: Iterable[StoredRow]) -> list[tuple[Fact, str]]:
    """Facts, each with its writer."""
    return [
        (
            Fact(
                rollout=row["rollout"],
                name=row["name"],
                value=from_json(row["value"]),
                stream=row["stream"],
                message=row["message"],
                author=row["author"],
                time=row["time"],
                n=row["n"],
            ),
            row["writer"] or "",
        )
        for row in rows
    ]


def _tokens(row: StoredRow) -> Tokens | None:
    streams = {name: row[name] for name in KNOWN_STREAMS if row[name] is not None}
    streams |= row["streams"] or {}
    if row["token_ids"] is None and row["token_ends"] is None and not streams:
        return None
    return Tokens(row["token_ids"], row["token_ends"], streams)


def _error(row: StoredRow) -> Error | None:
    kind, type, text = (row[f"error_{name}"] for name in ("kind", "type", "text"))
    if kind is None and type is None and text is None:
        return None
    return Error(kind=kind, type=type, text=text)


def from_json(text: str | None) -> Any:
    """The value of a JSON column. One that another program nested too deep to be taken apart stays
    a text."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except RecursionError:
        return text


def _mapping(found: Any) -> dict[str, Any]:
    """What other programs wrote where a mapping belongs is its `value`, as if it was logged."""
    if isinstance(found, dict):
        return found
    return {} if found is None else {"value": found}


def _listed(text: str | None) -> list[Any]:
    found = from_json(text)
    if isinstance(found, list):
        return found
    return [] if found is None else [found]
