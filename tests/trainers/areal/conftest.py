"""AReaL's own executor, workflows, proxy and actor; only the inference engine is not real."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rollscope import capture

if TYPE_CHECKING:
    from areal_world import Rollouts

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

# litellm, which AReaL's proxy imports, would ask the network for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.fixture
def rollouts(tmp_path: Path, own_store: Path) -> "Iterator[Rollouts]":
    from areal_world import Rollouts

    made = Rollouts(tmp_path)
    yield made
    made.close()
    if (run := capture.active()) is not None:
        run.finish()
