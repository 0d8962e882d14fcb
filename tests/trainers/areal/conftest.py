"""AReaL's own executor, workflows, proxy and actor; only the inference engine is not real."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

# litellm, which AReaL's proxy imports, would ask the network for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
