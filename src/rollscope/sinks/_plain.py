"""Values that any other system takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.normalise import finite

MOST_NUMBERS = 16
"""A longer list of only numbers is taken for tokens, log probabilities or pixels, which stay in the
store."""


def plain(value: Any) -> Any:
    """A JSON value of the store as one that may be sent.

    >>> plain({"n": float("nan"), 2: 2**70})
    {'n': 'NaN', '2': '1180591620717411303424'}
    """
    if isinstance(value, dict):
        return {text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return str(value)
    return finite(value)


def without_tokens(value: Any) -> Any:
    """A value that a program handed over (inputs, outputs, meta), without long lists of numbers.

    >>> without_tokens({"prompt_ids": list(range(1000)), "n": 8})
    {'prompt_ids': '[1,000 numbers, not sent]', 'n': 8}
    """
    if isinstance(value, dict):
        return {key: without_tokens(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > MOST_NUMBERS and all(isinstance(item, (int, float)) for item in value):
            return f"[{len(value):,} numbers, not sent]"
        return [without_tokens(item) for item in value]
    return value


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Only what is known: None is left out."""
    return {name: value for name, value in values.items() if value is not None}


def milliseconds(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else (end - start) * 1000


def text(value: str) -> str:
    """A text without lone surrogates, which UTF-8 cannot hold."""
    return value.encode("utf-8", "replace").decode()


def cut(value: str, most: int) -> str:
    """At most `most` characters of a text, and how many are missing.

    >>> cut("1234567", 5)
    '12345\\n[cut here: 2 more characters]'
    """
    if len(value) <= most:
        return value
    return f"{value[:most]}\n[cut here: {len(value) - most:,} more characters]"
