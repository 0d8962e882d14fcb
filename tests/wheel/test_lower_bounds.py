"""Every lower bound of pyproject.toml is true: with exactly these versions, everything works.

A trainer often pins an older version of a package that we need, and pip leaves it as it is. Ray is
large, and left to `tests/trainers/ray`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Fresh

RECORD = """
import rollscope
with rollscope.init(project="math", run="old") as run:
    for index in range(8):
        run.log(rollscope.Rollout(
            key=f"r{index}", step=index // 4, task="q", index=index % 4, reward=index % 2,
            messages=[{"role": "user", "content": "What is 2 + 2?"},
                      {"role": "assistant", "content": f"It is {index}."}]))
    run.annotate(key="r3", advantage=0.5)
"""
DEMO = """
import rollscope.demo
from rollscope.demo.trainer import Plan
short = Plan("short", steps=1, rate=1e-3, groups=2, ahead=1, eval_every=1)
rollscope.demo.run("demo", plans=[short], warm_steps=2, tasks=(4, 2), weights_dir="weights")
"""


def lowest(requirement: str) -> str:
    """`msgspec==0.19` for `msgspec>=0.19`."""
    assert re.match(r"[\w.-]+>=[\d.]+(;|$)", requirement), requirement
    return requirement.replace(">=", "==", 1)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest versions have no wheels for it")
def test_with_the_oldest_versions_allowed_everything_works(wheel: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    extras = [r for extra, needed in optional.items() if extra != "ray" for r in needed]
    fresh = Fresh(tmp_path / "venv")
    fresh.install(*map(lowest, [*project["dependencies"], *extras]), str(wheel))
    store = tmp_path / "store"
    here = {"ROLLSCOPE_DIR": str(store), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def does(*words: str) -> str:
        done = fresh.run(*words, **here)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_there(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in does("rollscope", *words, "--json").splitlines()]

    does("python", "-c", RECORD)
    assert len(is_there("ls", "reward:1")) == 4
    does("rollscope", "compact")
    assert list(store.rglob("*.parquet")), "sealed"
    assert len(is_there("grep", '"It is"')) == 8
    assert is_there("ls", "advantage:>0")[0]["task"] == "q"
    assert "It is 3." in does("rollscope", "show", is_there("ls", "advantage:>0")[0]["id"])
    assert is_there("ls", "--dir", f"file://{store}")[0]["rollouts"] == 8, "obstore"
    does("rollscope", "scan")
    assert b"Rollscope" in served(fresh, "", **here)
    assert len(json.loads(served(fresh, "api/rollouts", **here))["rows"]) == 8
    does("python", "-c", f"import os; os.chdir({str(tmp_path)!r})\n{DEMO}")


def served(fresh: Fresh, path: str, **variables: str) -> bytes:
    """What `rollscope view` answers."""
    viewer = subprocess.Popen(
        [str(fresh.bin / "rollscope"), "view", "--no-browser", "--port", "0"],
        env=fresh.env(**variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert viewer.stdout is not None
        address = re.search(r"http://\S+/", viewer.stdout.readline())
        assert address is not None, "the viewer has not begun"
        with urllib.request.urlopen(address.group() + path, timeout=300) as answer:
            return bytes(answer.read())
    finally:
        viewer.terminate()
        viewer.wait(300)
