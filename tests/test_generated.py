"""What is made from the code is what the code says now. When one fails: `make generated`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
VIEWER = ROOT / "viewer"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = generator().generated()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_not_stale(name: str) -> None:
    assert (ROOT / name).read_text() == GENERATED[name], "run: make generated"


def test_the_types_of_the_page_are_those_of_the_api(tmp_path: Path) -> None:
    tool = VIEWER / "node_modules" / ".bin" / "openapi-typescript"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs node and the viewer's packages: make viewer")
    made = tmp_path / "schema.d.ts"
    subprocess.run(
        [tool, ROOT / "docs" / "openapi.json", "-o", made],
        cwd=VIEWER,
        check=True,
        capture_output=True,
    )
    assert (VIEWER / "src" / "api" / "schema.d.ts").read_text() == made.read_text(), (
        "run: make generated"
    )
