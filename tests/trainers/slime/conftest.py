import importlib.machinery
import sys
import types
from pathlib import Path

import pytest

UPSTREAM = Path(__file__).resolve().parents[4] / "shared" / "upstream" / "slime"

if UPSTREAM.is_dir():
    sys.path.insert(0, str(UPSTREAM))
    # A hosted service that slime imports and that is not used here.
    wandb = types.ModuleType("wandb")
    wandb.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    sys.modules.setdefault("wandb", wandb)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "verl"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.name.startswith("test_") and not UPSTREAM.is_dir():
        print(f"slime is on no package index and its source is not at {UPSTREAM}: skipped")
        return True
    return None
