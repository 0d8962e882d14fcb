"""The server itself: what it is, why it refused, what is new, what it can be told."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...model.known import known


class Refusal(msgspec.Struct, kw_only=True):
    """Why a request was refused, for the person who made it."""

    error: str
    start: int | None = None
    """Where in the query it went wrong, in characters."""
    end: int | None = None
    suggestions: list[str] = []


class Status(msgspec.Struct, kw_only=True):
    """What this server is and may."""

    version: str
    generation: str
    """Changes whenever the store has."""
    rollouts: int
    can_label: bool
    dir: str | None = None
    """Where the store lies, told to people of the same machine if it is not the usual place."""
    empty_help: list[tuple[str, str]] = []
    """Nothing recorded yet: (trainer, the line to type)."""


class ListedKey(msgspec.Struct, kw_only=True):
    """A key of the query language."""

    name: str
    match: str
    doc: str


class Keys(msgspec.Struct, kw_only=True):
    keys: list[ListedKey]


class Label(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A label to set or take back, or a note to write."""

    rollout: str
    """Its id, or the beginning of it."""
    label: Annotated[str, Meta(max_length=200)] | None = None
    value: bool = True
    note: str | None = None
    message: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    author: Annotated[str, Meta(max_length=200)] | None = None


class News(msgspec.Struct, kw_only=True):
    """Told on `/api/events` whenever the store has changed."""

    generation: str
    rollouts: int


class Done(msgspec.Struct, kw_only=True):
    ok: bool = True
    """Always true; what failed answers with an error."""


@known
class Login(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    token: str
