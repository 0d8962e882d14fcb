"""verifiers' own agents, envs and interception server; only the model behind it is not real."""

import os
import sys
from pathlib import Path

import pytest

os.environ["FAKE_KEY"] = "x"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from rollscope import capture


@pytest.fixture(autouse=True)
def no_run_outlives_its_test():
    yield
    run = capture.active()
    if run is not None:
        run.finish()
