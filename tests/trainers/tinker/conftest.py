"""tinker-cookbook's own rollouts and training loop; only the hosted service is not real."""

import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from rollscope import capture
from rollscope.adapters.tinker import loop


@pytest.fixture(autouse=True)
def nothing_outlives_its_test():
    yield
    loop.detach()
    run = capture.active()
    if run is not None:
        run.finish()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong inside Rollscope fails the test."""
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")
