"""The way data flows is the way packages may know each other: see ARCHITECTURE.md.

Each guard is a function over a tree of files that lists what is wrong in it. It is asked about the
package, and about small made-up trees in which something is wrong: a guard that cannot fail would
guard nothing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

import rollscope
from rollscope.sinks import KNOWN

SOURCE = Path(rollscope.__file__).parent

LAYERS = (
    "model",
    "store",
    "capture",
    "adapters",
    "sinks",
    "formats",
    "query",
    "checks",
    "server",
    "viewer",
    "demo",
    "cli",
)
"""Each package imports only from those before it."""

APART: dict[str, Callable[[str], bool]] = {
    "store": ("write", "seal", "read").__contains__,
    "adapters": lambda name: not name.startswith("_"),
    "sinks": KNOWN.__contains__,
    "formats": lambda name: not name.startswith("_"),
}
"""Packages whose rooms do not know each other: a room for each trainer, sink and format. The
function tells whether a module or folder is a room; what is none is shared by them."""

HEAVY = (
    "duckdb",
    "rich",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "torch",
    "ray",
    "starlette",
    "uvicorn",
    "asyncio",
    "subprocess",
    "importlib.metadata",
    "multiprocessing",
    "rollscope.store.seal",
    "rollscope.store.read",
    *(f"rollscope.{layer}" for layer in LAYERS[LAYERS.index("capture") + 1 :]),
)
"""What a program that only records must not pay for."""


# -- what a file imports -------------------------------------------------------------------

Name = tuple[str, ...]
"""A module of Rollscope by its path in the package: `("sinks", "spec")`."""

_MODULE = re.compile(r"rollscope((?:\.\w+)+)\.?(?::\w+)?")


def imports(path: Path, source: Path) -> set[Name]:
    """Every module of Rollscope that a file imports anywhere, for types or inside functions too.

    A text that names one counts: `import_module("rollscope.sinks")`, a table of such names, or an
    f-string that begins like one. Docstrings do not count, nor does a command that starts another
    process: `python -m rollscope.sinks`.
    """
    here = ("rollscope", *path.relative_to(source).with_suffix("").parts)
    tree = ast.parse(path.read_text())
    found: set[Name] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {tuple(name.name.split(".")) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = here[: -node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found |= {(*base, name.name) for name in node.names}
        elif isinstance(node, ast.Call) and _is_import(node.func):
            found |= {_relative(arg.value, here) for arg in node.args if _is_relative(arg)}
    for text in _texts(tree):
        if match := _MODULE.fullmatch(text):
            found.add(("rollscope", *match[1][1:].split(".")))
    return {name[1:] for name in found if name[0] == "rollscope" and len(name) > 1}


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text in the code, and the beginning of every f-string."""
    apart = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            apart.add(node.value)
        elif isinstance(node, (ast.List, ast.Tuple)):
            apart |= {item for word, item in pairwise(node.elts) if _is_text(word, "-m")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in apart:
            yield node.value


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _is_import(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__", "find_spec")


def _is_relative(arg: ast.expr) -> bool:
    return isinstance(arg, ast.Constant) and str(arg.value).startswith(".")


def _relative(text: str, here: Name) -> Name:
    name = text.lstrip(".")
    return (*here[: -(len(text) - len(name))], *name.split("."))


def files(source: Path) -> Iterator[tuple[Path, Name]]:
    """Every file of a package, with its path in it."""
    for path in sorted(source.rglob("*.py")):
        if path.parent != source:
            yield path, path.relative_to(source).with_suffix("").parts


# -- the guards ----------------------------------------------------------------------------


def upward(source: Path) -> list[str]:
    """Imports of a package that comes later."""
    return [
        f"{'/'.join(here)} imports {'.'.join(name)}"
        for path, here in files(source)
        for name in sorted(imports(path, source))
        if name[0] in LAYERS and LAYERS.index(name[0]) > LAYERS.index(here[0])
    ]


def sideways(source: Path) -> list[str]:
    """Imports of one room by another, or by what the rooms share.

    The package's own `__init__` may name its rooms: somebody has to.
    """
    wrong = []
    for path, (package, *rest) in files(source):
        if package not in APART or rest == ["__init__"]:
            continue
        mine = _room(package, rest[0])
        for name in sorted(imports(path, source)):
            theirs = _room(package, name[1]) if name[0] == package and len(name) > 1 else None
            if theirs not in (None, mine):
                wrong.append(f"{'/'.join((package, *rest))} imports {'.'.join(name)}")
    return wrong


def _room(package: str, module: str) -> str | None:
    """The room that a module belongs to: `mlflow` and `mlflow_trace` are of one."""
    is_room = APART[package]
    if is_room(module):
        return module
    head = module.partition("_")[0]
    return head if head and is_room(head) else None


def homeless(source: Path) -> list[str]:
    """Packages that are no layer, and modules that lie beside the packages."""
    packages = {path.relative_to(source).parts[0] for path in source.rglob("*.py")}
    return sorted(packages - {*LAYERS, "__init__.py", "__main__.py"})


def loaded(code: str) -> list[str]:
    """Which heavy modules a program has loaded after this code."""
    code += f"\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return shown.stdout.split()


# -- what they say of the package ----------------------------------------------------------


def test_each_package_imports_only_from_those_before_it() -> None:
    assert upward(SOURCE) == []


def test_one_trainer_sink_format_or_room_of_the_store_does_not_know_another() -> None:
    assert sideways(SOURCE) == []


def test_every_package_has_its_place() -> None:
    assert homeless(SOURCE) == []


def test_the_map_has_the_packages_in_this_order() -> None:
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    table = page.partition("## The packages")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"\[`(\w+)/`\]", table)) == LAYERS


def test_recording_brings_in_nothing_heavy() -> None:
    assert loaded("import rollscope") == []


def test_the_reading_side_comes_on_first_use() -> None:
    assert "rollscope.query" in loaded("import rollscope; rollscope.open")


# -- and of trees in which something is wrong ----------------------------------------------


def planted(tmp_path: Path, tree: Mapping[str, str]) -> Path:
    for name, text in tree.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("capture/run.py", "from ..sinks import spec"),
        ("capture/run.py", "from ..sinks.spec import parse"),
        ("capture/run.py", "from .. import sinks"),
        ("capture/run.py", "from rollscope import sinks"),
        ("capture/run.py", "import rollscope.sinks.spec as spec"),
        ("capture/__init__.py", "from ..sinks import spec"),
        ("capture/deep/__init__.py", "from ...sinks import spec"),
        ("capture/run.py", "def later():\n    from ..sinks import spec"),
        ("capture/run.py", "if TYPE_CHECKING:\n    from ..sinks import spec"),
        ("capture/run.py", "importlib.import_module('rollscope.sinks.spec').parse"),
        ("capture/run.py", "import_module('..sinks.spec', __package__)"),
        ("capture/run.py", "__import__('rollscope.sinks')"),
        ("capture/run.py", "import_module(f'rollscope.sinks.{name}')"),
        ("capture/run.py", "SINKS = {'trackio': 'rollscope.sinks.trackio:Trackio'}"),
    ],
)
def test_an_import_of_a_later_package_is_found(tmp_path: Path, file: str, text: str) -> None:
    (wrong,) = upward(planted(tmp_path, {file: text}))
    assert wrong.startswith(f"{file.removesuffix('.py')} imports sinks")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("capture/run.py", "from ..store import paths\nfrom . import live\nimport sinks"),
        ("capture/run.py", '"""`rollscope.sinks` stands above."""'),
        ("store/write/log.py", "run([python, '-m', 'rollscope.cli', directory])"),
        ("formats/__init__.py", "READERS = {'verl': 'rollscope.adapters.verl.files'}"),
    ],
)
def test_other_imports_are_not(tmp_path: Path, file: str, text: str) -> None:
    assert upward(planted(tmp_path, {file: text})) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("adapters/verl/hook.py", "from ..trl import convert"),
        ("adapters/verl/hook.py", "from ..trl.convert import Batch"),
        ("adapters/verl/__init__.py", "from .. import trl"),
        ("adapters/verl/hook.py", "import_module('rollscope.adapters.trl')"),
        ("adapters/_rows.py", "from .trl.convert import Batch"),
        ("sinks/mlflow_trace.py", "from .weave import Weave"),
        ("sinks/mlflow.py", "from .weave_calls import completed"),
        ("sinks/state.py", "from .trackio import Trackio"),
        ("formats/sft.py", "from .pairs import write"),
        ("formats/_export.py", "from . import jsonl"),
        ("store/read/reader.py", "from ..write.log import Entry"),
        ("store/paths.py", "from .read import reader"),
    ],
)
def test_a_room_that_knows_another_is_found(tmp_path: Path, file: str, text: str) -> None:
    (wrong,) = sideways(planted(tmp_path, {file: text}))
    assert wrong.startswith(f"{file.removesuffix('.py')} imports {file.partition('/')[0]}.")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("adapters/verl/hook.py", "from . import convert\nfrom .._rows import rows"),
        ("adapters/verl/hook.py", "from ...store.write import log"),
        ("sinks/mlflow.py", "from .mlflow_trace import told\nfrom . import _chat, base"),
        ("formats/__init__.py", "from . import columns"),
        ("store/read/reader.py", "from .bodies import BodyReader\nfrom ..paths import root"),
        ("store/write/log.py", "run([python, '-m', 'rollscope.store.seal', directory])"),
    ],
)
def test_what_a_room_may_know_is_not(tmp_path: Path, file: str, text: str) -> None:
    assert sideways(planted(tmp_path, {file: text})) == []


def test_a_package_without_a_place_is_found(tmp_path: Path) -> None:
    tree = planted(
        tmp_path, {"__init__.py": "", "utils.py": "", "helpers/x.py": "", "model/x.py": ""}
    )
    assert homeless(tree) == ["helpers", "utils.py"]


def test_what_is_heavy_is_seen() -> None:
    assert set(loaded("import asyncio, rollscope.sinks")) >= {"asyncio", "rollscope.sinks"}
