"""Rollscope, called in its own environment, as a person would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROLLSCOPE = Path(__file__).parents[2] / ".venv" / "bin" / "rollscope"


@pytest.fixture(scope="session")
def rollscope() -> Callable[..., str]:
    """`rollscope("import", path, "--dir", folder)`: what it printed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE")}

    def run(*words: str) -> str:
        command = [str(ROLLSCOPE), *words]
        done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
        return done.stdout

    return run
