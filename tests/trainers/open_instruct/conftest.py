"""open-instruct's own data preparation, from its source; the engine's queue is the fake edge.

Its source pins vLLM, DeepSpeed and more that cannot be installed here: modules that are only
imported, never called, are stand-ins.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
