"""What docs/sinks.md says is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout
from rollscope.sinks.spec import COMMON

from .conftest import wait_complete

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "sinks.md").read_text()


def test_the_page_tells_the_options_that_all_sinks_have() -> None:
    assert [option for option in COMMON if f"| `{option}` |" not in PAGE] == []


def test_the_sink_of_the_example_works(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "(Sink)" in c]
    (entry,) = re.findall(r'lines = "(.*?)"', PAGE)
    info = tmp_path / "site" / "my_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rollscope.sinks]\nlines = {entry}\n")
    (info.parent / "my_package.py").write_text(code)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    out = tmp_path / "out.txt"
    with rollscope.init(project="p", run="r", sinks=[f"lines:path={out}"]) as run:
        (id,) = run.log(Rollout(step=3, task="q", reward=0.5))
    wait_complete(own_store, "lines")
    assert out.read_text() == f"{id} step 3: 0.5\n"
    sys.modules.pop("my_package", None)
