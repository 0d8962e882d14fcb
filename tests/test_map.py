"""ARCHITECTURE.md and CONTRIBUTING.md name only what is there: files, functions, commands.

Everything in backticks is looked up. A file is named by its path from the root, from
`src/rollscope/` or from `viewer/src/`; `<name>` in a path stands for any name. A Python name begins
with its package: `model.schema.Column`. Without a package it is looked up in the file that was
named last in the same paragraph, item or row.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from rollscope.cli import COMMANDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rollscope"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")

PATH = re.compile(r"[\w.<>*-]*(/[\w.<>*-]*)+|[\w-]+\.(?:py|md|ts|toml|svelte)")
NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


@functools.cache
def defined(file: Path) -> frozenset[str]:
    """The names that a Python file defines: `Run`, `Run.log`, `ROLLOUTS`."""
    found: set[str] = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found.add(prefix + node.name)
                case ast.ClassDef():
                    found.add(prefix + node.name)
                    look(node.body, f"{prefix}{node.name}.")
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(prefix + name)
                case ast.Assign(targets=targets):
                    found.update(prefix + t.id for t in targets if isinstance(t, ast.Name))

    look(ast.parse(file.read_text()).body, "")
    return frozenset(found)


def files(path: str) -> list[Path]:
    pattern = re.sub(r"<\w+>", "*", path).strip("/")
    return [f for top in (ROOT, SOURCE, ROOT / "viewer" / "src") for f in top.glob(pattern)]


def is_python(name: str) -> bool:
    """`model.schema.Column`: the module is the longest beginning that is one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = SOURCE.joinpath(*parts[:end])
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if file.is_file():
            rest = ".".join(parts[end:])
            return not rest or rest in defined(file)
    return False


@functools.cache
def anywhere() -> frozenset[str]:
    return frozenset(name for file in SOURCE.rglob("*.py") for name in defined(file))


def blocks(text: str) -> list[str]:
    """Paragraphs, items of lists and rows of tables; no examples of code."""
    prose = re.sub(r"^```.*?^```$|^    .*?$", "", text, flags=re.DOTALL | re.M)
    return re.split(r"\n\s*(?=\n|\||- |\d\. )", prose)


def has(file: Path, name: str) -> bool:
    if file.suffix == ".py":
        return name in defined(file)
    return file.is_file() and re.search(rf"\b{name}\b", file.read_text()) is not None


def wrong(text: str) -> list[str]:
    """What a page names and is not there."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    found = []
    for block in blocks(text):
        about: list[Path] = []
        for token in re.findall(r"`([^`]+)`", block):
            first, _, rest = token.partition(" ")
            if first == "make":
                is_there = rest.split()[0] in targets
            elif first == "rollscope" and rest:
                is_there = rest.split()[0] in COMMANDS
            elif PATH.fullmatch(token):
                about = files(token)
                is_there = bool(about)
            elif NAME.fullmatch(token):
                is_there = is_python(token) or (
                    any(has(file, token) for file in about) if about else token in anywhere()
                )
            else:
                continue  # an example of code
            if not is_there:
                found.append(f"`{token}` in: {block.strip()}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_map_names_what_is_there(page: str) -> None:
    assert wrong((ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "`capture/nosuch.py`",
        "`capture/run.py`: `Run.nosuch`",
        "`capture/run.py`: `Background`",  # there is one, but not in this file
        "`model.schema.nosuch`",
        "`nosuch`",
        "`adapters/<trainer>/nosuch.py`",
        "`make nosuch`",
        "`rollscope nosuch`",
    ],
)
def test_a_name_that_is_not_there_is_found(line: str) -> None:
    assert len(wrong(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "`capture/run.py`: `Run.log`, `Run`",
        "`model.schema.Column`, `adapters/<trainer>/convert.py`, `tests/`, `viewer/src/App.svelte`",
        "`make test`, `make trainers T=verl`, `rollscope ls`",
    ],
)
def test_a_name_that_is_there_is_not(line: str) -> None:
    assert wrong(line) == []
