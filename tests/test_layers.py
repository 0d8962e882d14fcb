"""The way data flows is the way packages may know each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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
"""Each package imports only from those before it (DESIGN, section 1)."""

APART = ("adapters", "sinks", "formats")
"""Packages whose modules (one per trainer, sink, format) do not know each other. Modules
that begin with an underscore are what they share; in `sinks`, all but the sinks are."""

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
    *(f"rollscope.{layer}" for layer in LAYERS[3:]),
)
"""What a program that only records must not pay for."""


def imports(path: Path) -> set[tuple[str, ...]]:
    """Every module of Rollscope that a file imports anywhere, as its path in the package."""
    here = ("rollscope", *path.relative_to(SOURCE).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(name.name.split(".")) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: -node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            found |= {(*base, name.name) for name in node.names}
    return {name[1:] for name in found if name[0] == "rollscope" and len(name) > 1}


def _stem(module: str) -> str:
    """`tinker` of `tinker_files`: the files of one trainer begin with its name."""
    return module.partition("_")[0]


def files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]


def test_each_package_imports_only_from_those_before_it() -> None:
    wrong = []
    for path in files():
        package = path.relative_to(SOURCE).parts[0]
        for name in imports(path):
            if name[0] in LAYERS and LAYERS.index(name[0]) > LAYERS.index(package):
                wrong.append(f"{path.relative_to(SOURCE)} imports {'.'.join(name)}")
    assert wrong == []


def test_every_package_has_its_place() -> None:
    found = {p.name for p in SOURCE.iterdir() if p.is_dir() and not p.name.startswith("_")}
    assert found <= set(LAYERS)


def test_one_trainer_sink_or_format_does_not_know_another() -> None:
    wrong = []
    for path in files():
        package, *rest = path.relative_to(SOURCE).with_suffix("").parts
        if package not in APART or not rest or rest[0].startswith("_"):
            continue
        for name in imports(path):
            if name[0] != package or not (SOURCE / package / f"{name[1]}.py").exists():
                continue
            is_shared = name[1].startswith("_") or (package == "sinks" and name[1] not in KNOWN)
            if not is_shared and not name[1].startswith(_stem(rest[0])):
                wrong.append(f"{path.relative_to(SOURCE)} imports {'.'.join(name)}")
    assert wrong == []


def test_writing_sealing_and_reading_do_not_know_each_other() -> None:
    rooms = ("write", "seal", "read")
    wrong = []
    for path in sorted((SOURCE / "store").rglob("*.py")):
        room = path.relative_to(SOURCE / "store").parts[0]
        for name in imports(path):
            if name[:1] == ("store",) and set(name[1:2]) & set(rooms) - {room}:
                wrong.append(f"{path.relative_to(SOURCE)} imports {'.'.join(name)}")
    assert wrong == []


def test_recording_brings_in_nothing_heavy() -> None:
    code = f"import sys, rollscope; print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_reading_side_comes_on_first_use() -> None:
    code = "import rollscope, sys; rollscope.open; print('rollscope.query' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "rollscope.query" in shown.stderr or "rollscope.store" in shown.stderr:
        return  # the reading side is not there yet
    assert shown.stdout.strip() == "True"
