"""What could not be read, and where."""

from __future__ import annotations

from ..model.problem import Problem


class UnknownFormat(ValueError):
    """No such format, or a file that no format recognises."""


__all__ = ["Problem", "UnknownFormat"]
