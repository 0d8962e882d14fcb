"""The other systems are the versions that the documents speak of."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

PINNED = Path(__file__).parents[2] / "requirements" / "peers.txt"


@pytest.mark.parametrize("name", ["trackio", "mlflow", "weave", "opentelemetry-sdk"])
def test_what_the_sinks_are_tested_against_is_what_is_pinned(name: str) -> None:
    assert f"{name}=={version(name)}" in PINNED.read_text().splitlines()
