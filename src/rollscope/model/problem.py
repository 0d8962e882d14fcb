"""What could not be read, and where. Readers yield it in the place of a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing in a file that could not be read as a rollout."""

    file: Path
    line: int | None
    text: str

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.text}"
