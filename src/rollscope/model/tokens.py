"""The tokens of one message, and any number of streams aligned to them.

Arrays may be lists, NumPy, torch, or anything with DLPack or the buffer protocol. They are looked
at only when they are written. Nothing here imports NumPy or torch.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

INT_STREAMS = frozenset({"mask", "version"})
"""Streams of whole numbers (int32). All others are float32."""

KNOWN_STREAMS = (
    "logprob",
    "train_logprob",
    "ref_logprob",
    "advantage",
    "entropy",
    "mask",
    "version",
)
"""Streams with a column of their own on disk; any other name lies in `streams`."""


class Tokens:
    """Token ids that a message adds, and streams with one value for each of them.

    >>> t = Tokens([15496, 995], ends=[5, 11], logprob=[-0.1, None], mask=[0, 1])
    >>> t.logprob
    [-0.1, None]
    >>> t.entropy is None
    True

    `ends[i]` is the end of token i in the message's text, counted in characters (Unicode
    code points). Tokens that only complete a character together have the same end. None
    inside a stream means "not known for this token". Streams may be given by keyword or as
    `streams={...}`.
    """

    __slots__ = ("ends", "ids", "streams")

    ids: Any
    ends: Any
    streams: dict[str, Any]

    def __init__(
        self,
        ids: Any = None,
        ends: Any = None,
        streams: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        self.ids = ids
        self.ends = ends
        self.streams = {
            name: values
            for name, values in {**(streams or {}), **named}.items()
            if values is not None
        }

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not slots.
        if not name.startswith("_"):
            streams = self.streams
            if name in streams:
                return streams[name]
            if name in KNOWN_STREAMS:
                return None
        raise AttributeError(name)

    def __len__(self) -> int:
        for values in self.arrays():
            return len(values[1])
        return 0

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """Every array that is present, by name: `ids`, `ends`, then the streams."""
        if self.ids is not None:
            yield "ids", self.ids
        if self.ends is not None:
            yield "ends", self.ends
        yield from self.streams.items()

    def normalised(self) -> Tokens | None:
        """A copy with plain lists as the format holds them; None if there is nothing."""
        arrays: dict[str, Any] = {
            name: to_list(values, is_int(name)) for name, values in self.arrays()
        }
        return Tokens(**arrays) if arrays else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokens):
            return NotImplemented
        mine, theirs = dict(self.arrays()), dict(other.arrays())
        return mine.keys() == theirs.keys() and all(
            _same(to_list(values, is_int(name)), to_list(theirs[name], is_int(name)))
            for name, values in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.arrays())
        return f"<Tokens {len(self)}: {names}>"

    # Pickled like any record: Ray and process pools carry rollouts between processes.
    def __reduce__(self) -> tuple[Any, ...]:
        return (Tokens, (self.ids, self.ends, self.streams))


def is_int(name: str) -> bool:
    """Does this array hold whole numbers?"""
    return name in INT_STREAMS or name in ("ids", "ends")


def to_list(values: Any, whole: bool) -> list[Any]:
    """Plain Python numbers, rounded as the format holds them (int32 or float32)."""
    if hasattr(values, "tolist"):
        values = detached(values).tolist()
    if whole:
        return [None if v is None else int(v) for v in values]
    numbers = list(values)
    try:
        return array("f", numbers).tolist()  # six times as fast as one by one
    except TypeError:  # some are not known
        return [None if v is None else float32(v) for v in numbers]


def detached(values: Any) -> Any:
    """A tensor without its graph and on the host; anything else as it is."""
    if hasattr(values, "detach"):
        values = values.detach()
        if hasattr(values, "cpu"):
            values = values.cpu()
    return values


def float32(value: Any) -> float:
    """The nearest float32, as a Python float. Too large becomes infinite, as in any array."""
    value = float(value)
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        x == y or (x is not None and y is not None and x != x and y != y)
        for x, y in zip(a, b, strict=True)
    )
