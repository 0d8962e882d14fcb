"""Is the record right, what is odd about a rollout, how does the run go, and what differs.

from rollscope.checks import scan
scan(store, "run:qwen3-4b-grpo")         # checks look at what nobody has looked at yet
counts(store, "run:qwen3-4b-grpo")       # of every check that is known; of those that looked:
store.findings("run:qwen3-4b-grpo").counts()
"""

from .align import Alignment, align
from .check import Check, Evidence, Spot, check
from .counts import counts
from .scanning import Scan, ScanReport, scan
from .settings import Settings, SettingsError
from .subject import OneGroup, OneRollout

__all__ = [
    "Alignment",
    "Check",
    "Evidence",
    "OneGroup",
    "OneRollout",
    "Scan",
    "ScanReport",
    "Settings",
    "SettingsError",
    "Spot",
    "align",
    "check",
    "counts",
    "scan",
]
