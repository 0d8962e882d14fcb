"""Do something when a module has been imported, without importing it.

A plugin that loads by itself must not pull heavy modules into processes that do not need them. So
it says which module it waits for. If that is already loaded, it is called at once.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` when the module `name` is imported, or now if it is loaded."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback(module)
        return
    if not any(finder is _finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no module itself. It wraps the loader that another finder has found."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.waiting)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader. Only looking for a module (`python -m`) changes nothing."""

    def __init__(self, inner: importlib.abc.Loader, waiting: dict[str, list[Callback]]) -> None:
        self.inner = inner
        self.waiting = waiting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if we had never been there (pickling, resources, reload).
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        for callback in self.waiting.pop(module.__name__, ()):
            callback(module)


_finder = _Finder()
