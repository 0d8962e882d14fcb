"""The wheel that users install, and fresh environments to install it into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("building the wheel needs npm")
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=600)
    (built,) = out.glob("*.whl")
    return built


class Fresh:
    """An environment with nothing in it but what is installed here."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.bin = folder / "bin"

    def install(self, *what: str) -> None:
        # An index may fail for a moment.
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "-q"]
        subprocess.run(
            [*pip, "install", "--retries", "10", "--disable-pip-version-check", *what],
            check=True,
            timeout=900,
        )

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A program of this environment, told nothing about the one that the tests run in."""
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env=self.env(**variables),
            capture_output=True,
            text=True,
            timeout=600,
        )

    @staticmethod
    def env(**variables: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ROLLSCOPE"))}
        return {**kept, **variables}
