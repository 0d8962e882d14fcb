"""Rollouts beside each other."""

from __future__ import annotations

from typing import Any

import msgspec

from .rows import RolloutRow


class DifferingField(msgspec.Struct, kw_only=True):
    """A field in which the compared rollouts are not alike; values in their order."""

    key: str
    values: list[Any]


class ShownWords(msgspec.Struct, kw_only=True):
    """A run of text: `same` as in the rollouts beside it, or only its own. Instead of the middle of
    a long one stands how many characters were `skipped`."""

    same: bool
    text: str = ""
    skipped: int = 0


class Side(msgspec.Struct, kw_only=True):
    """One rollout's message in an aligned row; `n` null: it has none there."""

    n: int | None = None
    role: str | None = None
    name: str | None = None
    words: list[ShownWords] = []


class Aligned(msgspec.Struct, kw_only=True):
    """Messages that stand beside each other, one side per rollout."""

    same: bool
    sides: list[Side]


class FirstDifference(msgspec.Struct, kw_only=True):
    """The first place where the texts part: in aligned row `row`, `char` characters in."""

    row: int
    char: int = 0


class Compared(msgspec.Struct, kw_only=True):
    rows: list[RolloutRow]
    aligned: list[Aligned]
    first: FirstDifference | None = None
    rough: bool = False
    """Texts so long and so different that not all of their words were compared."""
    differences: list[DifferingField] = []
