"""What lies in the wheel, and what it says of itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import rollscope

from .conftest import ROOT

NO_POSIX = """
import os, sys
for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules[name] = None
del os.uname, os.sysconf
import rollscope
"""


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked like an installer does."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def rollscope_of(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rollscope", *words],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": str(site), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_documentation_comes_with_the_wheel(site: Path) -> None:
    pages = rollscope_of(site, "docs", "--json").stdout
    for page in (ROOT / "docs").glob("**/*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert f'"{name}"' in pages
    assert str(site) in pages, "the wheel's own, not the checkout's"
    assert rollscope_of(site, "docs", "query").stdout.startswith("# Query")


def test_every_page_that_the_program_names_exists() -> None:
    """Whoever has only installed it can read what help and errors point to."""
    named = {
        (page, source)
        for source in (ROOT / "src").rglob("*.py")
        for page in re.findall(r"rollscope docs ([a-z-]+)[),;.]", source.read_text())
    }
    assert named
    missing = [at for at in named if not list((ROOT / "docs").glob(f"**/{at[0]}.md"))]
    assert missing == []


def test_the_wheel_says_where_it_runs(site: Path) -> None:
    (metadata,) = site.glob("rollscope-*.dist-info/METADATA")
    said = Parser().parsestr(metadata.read_text())
    assert said["Version"] == rollscope.__version__
    systems = [c for c in said.get_all("Classifier", []) if c.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]


def test_where_it_does_not_run_it_says_so() -> None:
    """Windows has none of these names."""
    done = subprocess.run(
        [sys.executable, "-c", NO_POSIX], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: rollscope runs on Linux and macOS")


def test_the_package_tells_what_it_has() -> None:
    assert set(rollscope.__all__) < set(dir(rollscope))
    assert "__version__" in dir(rollscope)
    for name in dir(rollscope):
        assert getattr(rollscope, name) is not None


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    run = rollscope.init(project="math", run="grpo", dir=tmp_path)
    assert repr(run) == "<Run math/grpo: recording, 0 rollouts>"
    with run.rollout(key="k", step=1) as live:
        live.message("user", "2 + 2?")
        assert repr(live).endswith(": open, 1 messages>")
    run.finish()
    assert repr(run) == "<Run math/grpo: finished, 1 rollout>"
    store = rollscope.open(tmp_path)
    assert repr(store) == f"Store({tmp_path})"
    assert repr(store.sql("SELECT 1 AS one, 2 AS two")) == "Result(one, two)"
    assert repr(store.search("2")) == "Search('2', 0 found)"
    assert repr(rollscope.Message(role="user", content="2 + 2?")) == (
        "Message(role='user', content='2 + 2?')"
    )
