"""Numbers with what they count, as people say them."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """`1 rollout`, `2,000 rollouts`, `2 processes`."""
    plural = "" if count == 1 else "es" if what.endswith("s") else "s"
    return f"{count:,} {what}{plural}"
