"""SkyRL's own classes from prompt to update; only the engine and the optimiser are not real."""

import sys
import typing
from pathlib import Path

import typing_extensions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if sys.version_info < (3, 12):
    # SkyRL's types cannot be imported below 3.12 otherwise: pydantic refuses the stdlib's.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

from loguru import logger

logger.remove()
