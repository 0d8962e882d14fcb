"""What type checkers are told about fields that take more than they hold.

People write messages, parts and calls as dicts, too; `normalise` makes records of them. Whoever
reads a rollout finds records. A checker learns both from a descriptor: what may be set, and what
is found there. At run time the fields are plain lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

if TYPE_CHECKING:

    class Records(Generic[T]):
        """A list of records, given as records or dicts."""

        def __get__(self, record: object, kind: object) -> list[T]: ...
        def __set__(self, record: object, given: Sequence[T | Mapping[str, Any]]) -> None: ...

    class TextOrRecords(Generic[T]):
        """A text, or a list of records, given as records or dicts; None: neither is known."""

        def __get__(self, record: object, kind: object) -> str | list[T] | None: ...
        def __set__(
            self, record: object, given: str | Sequence[T | Mapping[str, Any]] | None
        ) -> None: ...
else:
    Records = list
    TextOrRecords = str | list[T] | None

NOTHING: Any = None
NO_RECORDS: Any = msgspec.field(default_factory=list)
"""Defaults, which a checker would compare with the descriptor."""
