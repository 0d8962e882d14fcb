"""Traces what every loop of a program that the user does not own is given."""

from __future__ import annotations

from functools import partial
from typing import Any

from .._imports import when_imported
from .._seam import Seams, Watcher, Watching
from .state import PACKAGE

_seams = Seams("tinker", "tinker-cookbook")
_LOST = "what this program trains is not recorded. Supported: tinker-cookbook 0.3 to 0.6"


def install() -> None:
    """Record what the loops of this process train, once they are loaded."""
    for module, watcher in (
        ("rl.train", _train),
        ("distillation.train_on_policy", _distil),
        ("distillation.sdft", _self_distil),
    ):
        when_imported(f"{PACKAGE}.{module}", partial(_watch, watcher))


def _watch(watcher: Watcher, module: Any) -> None:
    _seams.watch(module, {"main": watcher}, _LOST)


def uninstall() -> None:
    _seams.restore()


def _traced(builder: Any) -> Any:
    from . import traced

    return traced(builder)


def _train(config: Any) -> Watching:
    import chz

    yield {"config": chz.replace(config, dataset_builder=_traced(config.dataset_builder))}


def _distil(config: Any) -> Watching:
    import chz

    datasets = [
        chz.replace(one, dataset_builder=_traced(one.dataset_builder))
        for one in config.dataset_configs
    ]
    yield {"config": chz.replace(config, dataset_configs=datasets)}


def _self_distil(sdft_dataset: Any, test_dataset: Any = None) -> Watching:
    yield {"sdft_dataset": _traced(sdft_dataset)}
