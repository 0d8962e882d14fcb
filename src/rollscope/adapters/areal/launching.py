"""Attaches itself to every trainer of a program that the user does not own."""

from __future__ import annotations

from typing import Any

from .._imports import when_imported
from .._seam import Seams, Watching

_seams = Seams("areal", "AReaL")


def install() -> None:
    """Record what this process trains; workers are told with their workflows."""
    when_imported("areal.trainer.rl_trainer", _watch)


def uninstall() -> None:
    _seams.restore()


def _watch(module: Any) -> None:
    lost = "what this program trains is not recorded"
    _seams.watch(module, {"PPOTrainer.__init__": _made}, lost)


def _made(trainer: Any, /) -> Watching:
    from . import attach

    yield
    attach(trainer)
