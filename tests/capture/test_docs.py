"""The documentation is true: its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rollscope

from . import reading

DOCS = Path(__file__).parents[2] / "docs"

EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "capture.md").read_text(), re.DOTALL)
RECORDED = [24, 2, 1, 1, 10, 1, 0, 0]
"""How many rollouts each example records."""


@pytest.mark.parametrize(("example", "count"), [*zip(EXAMPLES, RECORDED, strict=True)])
def test_an_example_runs_and_records(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, example: str, count: int
) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/capture.md", "exec"), names)
    assert len(reading.rollouts(own_store)) == count
    assert rollscope.capture.active() is None
