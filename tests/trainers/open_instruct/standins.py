"""Stand-ins for modules that open-instruct imports and its data preparation never calls."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, ClassVar
from unittest.mock import MagicMock

_ABSENT = (
    "absl",
    "olmo_core",
    "deepspeed",
    "vllm",
    "cached_path",
    "boto3",
    "botocore",
    "beaker",
    "docker",
    "litellm",
    "mcp",
    "google.api_core",
    "google.cloud",
    "google.auth",
    "peft",
    "openenv",
    "nltk",
    "langdetect",
    "immutabledict",
    "wandb",
    "uvicorn",
    "openai",
    "backoff",
)


class _Class(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Callbacks of OLMo-core are compared by their priority when they are defined.
        value = 0 if name == "priority" else MagicMock(name=f"{cls.__name__}.{name}")
        setattr(cls, name, value)
        return value


class _Module(types.ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # open-instruct mends a field of vLLM's MambaSpec when it is imported.
        body = {"__dataclass_fields__": MagicMock()} if name == "MambaSpec" else {}
        value = _Class(name, (), body) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == absent or name.startswith(absent + ".") for absent in _ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def install() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
