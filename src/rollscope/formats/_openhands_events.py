"""What a stream of OpenHands' events becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..model import Error, Message


class Conversation(NamedTuple):
    """The messages of a stream, and how it ended."""

    messages: list[Message]
    stop_reason: str | None = None
    error: Error | None = None
    tools: Sequence[Any] = ()
