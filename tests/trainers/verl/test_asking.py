"""Installed is not on: verl is untouched until somebody asks, by any of three ways."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from world import stored

HERE = Path(__file__).parent
BY_CONFIG = "actor_rollout_ref.rollout.trace.backend=rollscope"


def asked(model: Path, *overrides: str, **env: str) -> dict[str, Any]:
    """A training process in which Rollscope is installed; nothing in it mentions Rollscope."""
    done = subprocess.run(
        [sys.executable, str(HERE / "asking.py"), str(model), *overrides],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["turns"] == 8 and found["ours"] == []
    return {**found, "stderr": done.stderr}


def test_installed_and_not_asked_leaves_every_function_of_verl_as_it_is(
    model: Path, own_store: Path
) -> None:
    found = asked(model)
    assert found["replaced"] == []
    assert "rollscope" not in found["stderr"]
    assert not own_store.exists()


def test_verls_own_option_is_enough_and_gives_the_names(model: Path, own_store: Path) -> None:
    found = asked(model, BY_CONFIG, "trainer.experiment_name=qwen/1")
    assert "_compute_score" in found["replaced"]
    assert len(stored(own_store)) == 4
    (info,) = own_store.glob("*/*/writers/*.json")
    written = json.loads(info.read_text())
    assert (written["project"], written["run"]) == ("maths", "qwen/1")
    assert written["adapters"][0]["name"] == "verl"
    assert written["adapters"][0]["version"] == "0.9.1"


def test_the_environment_is_enough(model: Path, own_store: Path) -> None:
    asked(model, ROLLSCOPE="on")
    assert len(stored(own_store)) == 4


def test_off_wins_over_verls_own_option(model: Path, own_store: Path) -> None:
    found = asked(model, BY_CONFIG, ROLLSCOPE="off")
    assert found["replaced"] == []
    assert not own_store.exists()
