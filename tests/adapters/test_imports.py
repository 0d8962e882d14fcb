"""Waiting for a module costs nothing until somebody imports it, and changes nothing then."""

import runpy
import sys
from pathlib import Path

import pytest

from rollscope.adapters._imports import when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"waited_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_the_callback_runs_after_the_module_and_only_then(package: str) -> None:
    seen: list[int] = []
    when_imported(package, lambda module: seen.append(module.value))
    assert seen == [] and package not in sys.modules
    module = __import__(package)
    assert seen == [1]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__.loader is module.__loader__


def test_a_module_that_is_loaded_already_is_told_at_once(package: str) -> None:
    __import__(package)
    seen: list[int] = []
    when_imported(package, lambda module: seen.append(module.value))
    assert seen == [1]


def test_a_module_that_does_not_exist_still_fails_to_import() -> None:
    when_imported("no_such_module_of_ours", lambda module: None)
    with pytest.raises(ImportError):
        __import__("no_such_module_of_ours")


def test_a_module_that_is_run_as_a_program_is_waited_for_until_it_is_imported(package: str) -> None:
    """`python -m package` looks the module up and runs its code under another name."""
    seen: list[int] = []
    when_imported(package, lambda module: seen.append(module.value))
    assert runpy.run_module(package, run_name="__main__")["value"] == 1
    assert seen == []
    __import__(package)
    assert seen == [1]
