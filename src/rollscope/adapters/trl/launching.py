"""Attaches itself to every trainer of a program that the user does not own."""

from __future__ import annotations

import importlib
from copy import copy
from functools import partial
from typing import Any

from ... import capture
from .._imports import when_imported
from .._seam import Seams, Watching

_seams = Seams("trl", "TRL")
_LOST = "what this program trains is not recorded"
_TRAINERS = {"grpo_trainer": "GRPOTrainer", "rloo_trainer": "RLOOTrainer"}


def install() -> None:
    """Record what this process trains, and what accelerate starts for it."""
    for module, name in _TRAINERS.items():
        when_imported(f"trl.trainer.{module}", partial(_watch, name))
    with capture.guard("adapter trl: accelerate"):
        launch = importlib.import_module("accelerate.commands.launch")
        _seams.watch(launch, {"launch_command": _launch}, _LOST)


def uninstall() -> None:
    _seams.restore()


def _watch(name: str, module: Any) -> None:
    trainer = getattr(module, name, None)
    if trainer is not None:
        _seams.watch(trainer, {"train": _train}, _LOST)


def _train(trainer: Any, /) -> Watching:
    from .hook import attach

    attach(trainer)
    yield


def _launch(args: Any) -> Watching:
    """`trl grpo` and `accelerate launch` start the script in other processes: we go first there."""
    if getattr(args, "no_python", False):
        capture.report("adapter trl", f"accelerate is to start no Python: {_LOST}")
        return
    changed = copy(args)
    script = ["-m"] if getattr(args, "module", False) else []
    changed.training_script_args = [*script, args.training_script, *args.training_script_args]
    changed.training_script, changed.module = __package__, True
    yield {"args": changed}
