"""Images in a row of the dataset: stored with one sibling, and named in the others. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

_SMALL = 4096
"""Characters up to which a text stands in every sibling, whatever it is."""

_ENCODED = re.compile(r"(data:[\w/+.-]+;base64,)?[A-Za-z0-9+/_\s-]+={0,2}", re.ASCII)


def once(value: Any, stored: set[str]) -> Any:
    """`value` with each image in it that `stored` does not name yet. Others are only named.

    An image is a long text of base64, with or without `data:`.
    """
    if isinstance(value, str):
        return _once(value, stored) if len(value) > _SMALL else value
    if isinstance(value, Mapping):
        return {name: once(item, stored) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [once(item, stored) for item in value]
    return value


def _once(text: str, stored: set[str]) -> str:
    head = text[:_SMALL]
    if " " in head.strip() or not _ENCODED.fullmatch(head):
        return text
    name = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    if name not in stored:
        stored.add(name)
        return text
    return f"{text[:64]}... ({len(text)} characters, {name}: whole in a sibling)"
