"""A trainer's settings, whatever they are made of: dicts, dataclasses, OmegaConf, namespaces."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from .. import capture
from ..model.algorithm import Algorithm


def note(
    adapter: str, run: capture.Run | None, read: Callable[[Any], Algorithm], given: Any
) -> None:
    """Note in the run what the trainer's settings say, as `read` understands them."""
    with capture.guard(f"adapter {adapter}: settings"):
        if run is not None:
            run.note_algorithm(read(given))


class Settings:
    """Values by their dotted names. What is not there, or is of another type, is None.

    >>> Settings({"rollout": {"n": 8}}).whole("rollout.n")
    8
    """

    def __init__(self, given: Any) -> None:
        self._given = given

    def value(self, path: str) -> Any:
        found = self._given
        for name in path.split("."):
            try:
                found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
            except Exception:  # not there, or it refers to a setting that is not
                return None
        return found

    def word(self, path: str) -> str | None:
        found = self.value(path)
        found = found.value if isinstance(found, enum.Enum) else found
        return found if isinstance(found, str) and found else None

    def flag(self, path: str) -> bool | None:
        found = self.value(path)
        return found if isinstance(found, bool) else None

    def number(self, path: str) -> float | None:
        found = self.value(path)
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
        return float(found) if is_number else None

    def whole(self, path: str) -> int | None:
        found = self.number(path)
        return int(found) if found is not None and found.is_integer() else None


def first(*values: Any) -> Any:
    """The first that is known."""
    return next((value for value in values if value is not None), None)
