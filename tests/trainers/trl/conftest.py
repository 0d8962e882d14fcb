"""TRL's own trainers, from generation to update, on a random model of 27 thousand weights."""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"  # more threads than cores make a tiny model slow
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from rollscope import capture


@pytest.fixture(autouse=True)
def no_run_outlives_its_test():
    yield
    run = capture.active()
    if run is not None:
        run.finish()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong inside Rollscope fails the test."""
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")
