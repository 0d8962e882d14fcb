"""What people and checks said about a rollout: labels, flags and notes."""

from __future__ import annotations

from typing import Any

import msgspec

from rollscope.store.read.records import from_json

from .engine import Engine
from .sql import Sql


class Note(msgspec.Struct, frozen=True):
    """One label, flag or note, about the rollout or one of its messages."""

    name: str
    """`label.<name>`, `flag.<name>` or `note`."""
    value: Any
    message: int | None
    author: str | None
    time: float | None


_SAID = """SELECT name, value::VARCHAR, message, author, time FROM facts
    WHERE rollout = ?
        AND (name = 'note' OR starts_with(name, 'label.') OR starts_with(name, 'flag.'))
    ORDER BY time, writer, n"""


def notes(engine: Engine, id: str) -> list[Note]:
    """All notes, and of each label and flag of a message the last word."""
    held: dict[Any, Note] = {}
    for place, (name, value, *rest) in enumerate(engine.rows(Sql(_SAID, (id,)))):
        note = Note(name, from_json(value), *rest)
        held[place if name == "note" else (name, note.message)] = note
    return list(held.values())
