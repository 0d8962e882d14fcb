"""A recipe that the user does not own, with our launcher in front."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from stored import Stored

RECIPE = """
import pytest
from pathlib import Path
from training import groups, run

with pytest.MonkeyPatch.context() as patch:
    run(Path({path!r}), patch, [groups(1), groups(2)], traced=False)
"""


def test_a_recipe_as_a_module(own_store: Path, tmp_path: Path) -> None:
    (tmp_path / "my_recipe.py").write_text(RECIPE.format(path=str(tmp_path)))
    here = Path(__file__).resolve().parent
    places = [tmp_path, here, here.parent, *sys.path]
    said = subprocess.run(
        [sys.executable, "-m", "rollscope.adapters.tinker", "python", "-m", "my_recipe"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    stored = Stored(own_store)
    assert stored.projects == {("sums", "run-1")}
    assert Counter((r.step, r.fate) for r in stored) == {(0, "trained"): 3, (1, "trained"): 3}
