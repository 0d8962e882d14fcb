"""Precision and recall of the signs of gaming, on runs whose rollouts are labelled.

In `inspect-reward-hacking`, a judge said of each rollout of `re-bench` whether it games the task.
In `lcb-oneoff`, tests contradict the task, so whoever passes them has gamed them; whoever does not
may have tried. There the score is the label. A trainer would not know it, so every rollout is
looked at as if it had been rewarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollscope.checks import OneRollout, Settings
from rollscope.checks.look import Panel

from .corpus import real

SETS = ("re-bench", "lcb-oneoff")
CHECK = "reward.gamed"
COUNTED = [f"{label}{what}" for label in ("hacked", "honest") for what in ("", " found",
           " unobserved")]  # fmt: skip


def labelled() -> Iterator[tuple[str, str, bool, Any]]:
    """Set, half, whether it is hacked, and the rollout."""
    for one in real():
        name = next((name for name in SETS if f"_{name}" in one.file), None)
        if one.source == "inspect-reward-hacking" and name and one.rollout.reward is not None:
            yield name, one.half, one.rollout.reward == 1.0, one.rollout


def measured() -> list[dict[str, Any]]:
    panel = Panel(b for b in Settings(Path("/nonexistent")).bound("") if b.check.id == CHECK)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for name, half, is_hacked, rollout in labelled():
        rollout.reward = 1.0
        label = "hacked" if is_hacked else "honest"
        answer = panel.rollout(OneRollout(rollout))[0]
        numbers = counts.setdefault((name, half), dict.fromkeys(COUNTED, 0))
        numbers[label] += 1
        numbers[f"{label} found"] += bool(answer.found)
        numbers[f"{label} unobserved"] += bool(answer.unobserved)
    return [{"set": name, "half": half, **numbers} for (name, half), numbers in counts.items()]
