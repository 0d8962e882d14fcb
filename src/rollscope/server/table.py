"""One line per route: what is asked, what is answered, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Route(NamedTuple):
    method: str
    path: str
    answerer: Callable[..., Any]
    """Called with (desk, params, **path values, body=...) on a worker thread; a stream's is
    an async generator of (event, value)."""
    params: type
    answer: type | None
    doc: str
    body: type | None = None
    stream: bool = False

    @property
    def name(self) -> str:
        return self.answerer.__name__
