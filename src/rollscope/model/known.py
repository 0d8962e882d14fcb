"""Types that msgspec knows before anybody uses them.

msgspec looks through a type when it is first decoded or converted to, and keeps what it found
before it is complete. A second thread that uses the type meanwhile, or a process forked meanwhile,
ends with a segmentation fault. So a type is looked through while its module is imported.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def known(kind: T) -> T:
    """`kind`, which any number of threads may now use. A type, or a decorator of a class."""
    msgspec.json.Decoder(kind)
    return kind
