"""Loaded by every Python of this test, driver and Ray workers alike, because it lies on their path.

SkyRL's entry point runs as it is. What cannot run here is replaced when its module is imported:
the inference engine, the models, the forward pass and the optimiser step.
"""

import os
import sys
from pathlib import Path

if os.environ.get("SKYRL_WITHOUT_GPU"):
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

    from rollscope.adapters._imports import when_imported

    if sys.version_info < (3, 12):
        # SkyRL's types cannot be imported below 3.12 otherwise: pydantic refuses the stdlib's.
        import typing

        import typing_extensions

        typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

    def _replace(module: object) -> None:
        import without_gpu

        without_gpu.replace(module)

    when_imported("skyrl.train.entrypoints.main_base", _replace)
