"""SkyRL's own classes from prompt to update; only the engine and the optimiser are not real."""

import sys
from pathlib import Path

from loguru import logger

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
logger.remove()
