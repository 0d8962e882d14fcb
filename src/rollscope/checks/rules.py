"""Rules that the numbers of a group must keep: what the trainer's settings say, else what nearly
all groups of the run do. Where neither tells, a check of such a rule saw nothing."""

from __future__ import annotations

from typing import Literal

from .check import Evidence
from .subject import OneGroup

USUAL = 0.9
"""Share of a run's groups that makes what they do a rule; ours."""

Rule = Literal["kept", "signed", "balanced"]
"""Of advantages: a higher reward has no lower one; what is above the mean reward is not pushed
down; their mean is 0."""

_CENTRED = frozenset(("group", "leave_one_out"))
_SHARED = _CENTRED | {"batch", "greedy", "none"}
"""Baselines that are the same for all siblings, or keep their order."""

_TURNED = {"kept": ("turned",)}
"""Where nearly all groups turn the order round, all of them are joined with the wrong sign."""


def _holds(group: OneGroup, rule: Rule) -> bool:
    """Is it known that the advantages of a group must keep a rule?"""
    told = _told(group, rule)
    if told is not None:
        return told
    return any((group.share(n) or 0.0) >= USUAL for n in (rule, *_TURNED.get(rule, ())))


def _told(group: OneGroup, rule: Rule) -> bool | None:
    """What the trainer's settings say of it; None: nothing."""
    baseline = group.algorithm.get("baseline")
    if baseline is None:
        return None
    if group.algorithm.get("kl_in") in ("reward", "advantage") and group.algorithm.get("kl"):
        return False  # each is moved by its own divergence
    return baseline in (_SHARED if rule == "kept" else _CENTRED)


def ruled(rule: Rule, says: str) -> Evidence:
    """The rule must be known to hold."""
    return Evidence(f"settings, or ten groups, that say {says}", lambda group: _holds(group, rule))


def usually(name: str, says: str) -> Evidence:
    """Nearly all groups of the run must do so."""
    return Evidence(
        f"ten groups, nearly all of which {says}",
        lambda group: (group.share(name) or 0.0) >= USUAL,
    )
