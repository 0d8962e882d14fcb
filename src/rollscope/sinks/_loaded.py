"""Other systems' modules, looked up without importing them."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any | None:
    """A module that the trainer has imported; None if it has not, or is still importing it."""
    module = sys.modules.get(name)
    is_half = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_half else module
