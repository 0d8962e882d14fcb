"""What is noted of a rollout for checks of groups and steps, as numbers by name.

They go on with these numbers, so nobody reads a rollout twice. A text becomes a number that two
texts share only if they are the same.
"""

from __future__ import annotations

import hashlib

from .subject import OneRollout

VERSION = 1
"""Goes up when the same rollout may get other numbers."""


def digest(one: OneRollout) -> dict[str, float]:
    """The numbers that could be worked out; what is not known is not there."""
    found: dict[str, float] = {}
    if one.messages and one.prompt:
        found["prompt"] = number(one.prompt)
    if one.said:
        found["said"] = number(one.said)
        found["chars"] = float(len(one.said))
    return found


def number(text: str) -> float:
    """A text as a number that a float holds exactly."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))
