"""What the documents say is so: examples run, links lead somewhere, commands exist."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rollscope
from rollscope.cli import COMMANDS
from rollscope.formats import READERS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "viewer/*.md", "bench/*.md")
    for path in ROOT.glob(pattern)
)


def test_the_readme_examples_run_and_do_what_they_say(own_store: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    (row,) = rollscope.open(own_store).rollouts("reward:1 fate:trained")
    assert (row.task, row.advantage) == ("q-381", 0.7)


EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in ROOT.glob("src/**/*.py")
    if ">>> " in path.read_text() and path.parent.name != "query"  # shown without answers
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_give_what_they_say(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, part in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text()):
        if "://" in target:
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{path}: {target}"
        assert not part or part in anchors(there.read_text()), f"{path}: {target}#{part}"


def anchors(text: str) -> set[str]:
    """What can stand behind `#` in a link to a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_counts_the_formats() -> None:
    assert f"# {len(READERS)} formats, told apart" in (ROOT / "README.md").read_text()


def test_the_command_line_document_names_every_command() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`rollscope {name}" not in text] == []


PAGES = [ROOT / "README.md", *(ROOT / "docs" / "trainers").glob("*.md")]


def test_what_the_pages_type_is_there_after_the_one_import_that_they_show() -> None:
    found = {
        n
        for page in PAGES
        for n in re.findall(r"(?<!from )rollscope(?:\.\w+){2,}", page.read_text())
    }
    assert len(found) > 10
    code = f"""
import functools, rollscope
for name in {sorted(found)!r}:
    if name.startswith("rollscope.adapters."):
        try:
            functools.reduce(getattr, name.split(".")[1:], rollscope)
        except ModuleNotFoundError as missing:  # the trainer itself
            assert "rollscope" not in missing.name, name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_launcher_that_the_pages_type_can_be_run() -> None:
    typed = {n for page in PAGES for n in re.findall(r"-m (rollscope[\w.]*)", page.read_text())}
    assert {"rollscope.adapters.trl", "rollscope.adapters.tinker"} <= typed
    for name in typed:
        assert importlib.util.find_spec(f"{name}.__main__") is not None, name
