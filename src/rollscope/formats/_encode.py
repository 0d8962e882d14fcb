"""Rollouts and rows as JSON text."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import Rollout, Tokens, normalise
from ..model.chat import parsed
from ..model.normalise import finite

_UNSET = Rollout()


def encode(rollout: Rollout) -> bytes:
    """One rollout as one line of JSON, everything in it."""
    return line(msgspec.to_builtins(normalise(rollout), enc_hook=_tokens))


def line(body: Any) -> bytes:
    """Plain JSON values as one line. JSON has no NaN: it becomes the text that any engine and
    our own reader take for that number."""
    return msgspec.json.encode(finite(body))


def text(value: Any) -> str | None:
    """A JSON value or record as text, for columns that hold JSON; None stays None."""
    return None if value is None else line(msgspec.to_builtins(value)).decode()


def field(rollout: Rollout, name: str) -> str | None:
    """A field as text; None if it is as it is where nobody has set it. An empty list was set."""
    value = getattr(rollout, name)
    return None if value == getattr(_UNSET, name) else text(value)


def arguments(value: Any) -> Any:
    """Arguments of a tool call: an object, if the model wrote one."""
    found = parsed(value)
    return found if isinstance(found, dict) else value


def _tokens(tokens: Any) -> Any:
    if isinstance(tokens, Tokens):
        return dict(tokens.arrays())
    raise NotImplementedError(f"cannot write a {type(tokens).__name__}")
