"""Names that never collide, made without asking anybody.

A rollout with a `key` gets an id that every process of its launch can compute, so one
process can annotate what another logged. A rollout without a key gets a new id: a random part for
the process, and a counter. It costs the caller almost nothing and compresses to almost nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: nothing looks like anything else


def base32(number: int, digits: int) -> str:
    """`number` as text of exactly `digits` characters (the low ones)."""
    return "".join(_DIGITS[(number >> (5 * i)) & 31] for i in reversed(range(digits)))


def keyed_id(project: str, run: str, launch: str, key: str) -> str:
    """The id of the rollout with this `key` in a launch.

    Project and run count too, because one program may train two runs with the same keys.
    """
    text = "\0".join((project, run, launch, key)).encode("utf-8", "replace")
    return hashlib.blake2b(text, digest_size=10).hexdigest()


def id_maker() -> Callable[[], str]:
    """A function that makes new ids. Make a new one after a fork."""
    prefix = base32(int.from_bytes(os.urandom(8), "big"), 12)
    numbers: Iterator[int] = itertools.count()
    return lambda: f"{prefix}{next(numbers):08x}"


def prompt_task(text: str) -> str:
    """The task of a rollout whose trainer has no id for it: a hash of the prompt."""
    data = text.encode("utf-8", "replace")
    return "prompt-" + base32(
        int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big"), 12
    )
