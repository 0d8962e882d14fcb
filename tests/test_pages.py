"""Pages for newcomers: what they type runs, and every page can be found from the first one."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.cli import _parse, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TYPED = [
    (page.name, line)
    for page in [DOCS / "faq.md"]  # the tutorial and others have tests of their own
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)
    for line in block.splitlines()
    if line.startswith("rollscope ")
]


@pytest.fixture
def store(own_store: Path) -> Path:
    for name in ("grpo", "old-run"):
        with rollscope.init(project="math", run=name) as run:
            said = [Message(role="user", content="2 + 2?"), Message(role="assistant", content="4")]
            run.log([Rollout(task="q", step=1, split="train", reward=0.1, messages=said)] * 2)
    return own_store


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_a_command_of_a_page_runs(page: str, line: str, store: Path) -> None:
    try:
        code = main(shlex.split(line)[1:])
    except SystemExit as ended:  # --version
        code = int(ended.code or 0)
    assert code == 0


def test_every_command_that_a_page_types_is_understood() -> None:
    """A word that has become wrong, such as the name of an option, is refused."""
    typed = {
        (page.name, line)
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for line in re.findall(r"^(?:    |\$ )?(rollscope [^:].*)$", page.read_text(), re.M)
    }
    assert len(typed) > 60
    for page, line in typed:
        words = itertools.takewhile(lambda word: word not in "|&&>", shlex.split(line, True)[1:])
        try:
            _parse(list(words))
        except SystemExit as ended:
            pytest.fail(f"{page}: {line} ends with {ended.code}")


def test_every_program_of_a_page_is_python() -> None:
    """Most of them run in tests of their own. Those of the trainers' pages are pieces of programs
    that need the trainer."""
    programs = {
        (page, program)
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for program in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    }
    assert len(programs) > 30
    for page, program in programs:
        compile(program, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def test_bulk_reading_reads_everything(store: Path) -> None:
    (program, _) = re.findall(r"```python\n(.*?)```", (DOCS / "bulk.md").read_text(), re.S)
    names: dict[str, object] = {}
    exec(program, names)
    assert names["answers"] == ["4"] * 4
    assert sorted(names["by_role"]) == [("assistant", 4, 4), ("user", 4, 24)]  # type: ignore[call-overload]


def test_every_page_is_reached_from_the_index() -> None:
    index = DOCS / "README.md"
    seen, left = set(), [index]
    while left:
        page = left.pop().resolve()
        if page in seen:
            continue
        seen.add(page)
        if page in (index.resolve(), (DOCS / "trainers" / "README.md").resolve()):
            links = re.findall(r"\]\(([^)#\s:]+\.md)", page.read_text())
            left += [page.parent / link for link in links]
    pages = {page.resolve() for page in DOCS.glob("**/*.md")}
    assert pages - seen == set()
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()
