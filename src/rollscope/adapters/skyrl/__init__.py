"""SkyRL: every rollout of `RayPPOTrainer` and `FullyAsyncRayPPOTrainer`.

Without a line of code, for any run of SkyRL's own entry point:

    python -m skyrl.train.entrypoints.main_base \\
        trainer.override_entrypoint=rollscope.adapters.skyrl <your options>

For a script that is not yours:

    python -m rollscope.adapters.skyrl main_async.py <its options>

In an entry point of your own, one line:

    rollscope.adapters.skyrl.attach(trainer)           # before trainer.train()
    exp = rollscope.adapters.skyrl.traced(MyExp)(cfg)   # or the experiment class

`docs/trainers/skyrl.md` says what is captured. `convert` is the pure part: SkyRL's
`GeneratorInput` and `GeneratorOutput` to rollouts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

from ... import capture
from ...capture.cluster import share
from .._record import installed
from .._settings import note
from .convert import convert
from .hook import SkyRLRecorder
from .settings import algorithm

__all__ = ["attach", "convert", "main", "traced"]

_SUPPORTED = "RayPPOTrainer and FullyAsyncRayPPOTrainer of SkyRL 0.3"

_Trainer = TypeVar("_Trainer")


def attach(trainer: _Trainer, *, project: str | None = None, run: str | None = None) -> _Trainer:
    """Record this trainer's rollouts from now on. Call it once, before `trainer.train()`.

    Project and run are `trainer.project_name` and `trainer.run_name` of its configuration, unless
    given. A training that goes on from no checkpoint is a run of its own.
    Returns the trainer. With `ROLLSCOPE=off` nothing is touched.
    """
    with capture.guard("adapter skyrl: attach"):
        recorder = SkyRLRecorder(trainer)
        if recorder.fits(recorder.watchers(), "SkyRL", installed("skyrl"), supported=_SUPPORTED):
            cfg = trainer.cfg  # type: ignore[attr-defined]
            names = project or cfg.trainer.project_name, run or cfg.trainer.run_name
            named, anew = bool(project or run), _begins_anew(cfg.trainer)
            if recorder.attach(*names, _config(cfg), named=named, anew=anew):
                note("skyrl", recorder.run, algorithm, cfg)
    return trainer


def traced(experiment: type[Any]) -> type[Any]:
    """Your subclass of `BasePPOExp`, with the trainer it makes attached."""

    class Traced(experiment):  # type: ignore[misc]
        def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
            return attach(super().get_trainer(*args, **kwargs))

    Traced.__name__ = Traced.__qualname__ = f"Traced{experiment.__name__}"
    return Traced


def main() -> None:
    """What `skyrl.train.entrypoints.main_base` does, with rollouts recorded."""
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    share(asked=True)  # the cluster may have been started without this program's settings
    options = [a for a in sys.argv[1:] if not a.startswith("trainer.override_entrypoint=")]
    config = SkyRLTrainConfig.from_cli_overrides(options)
    validate_cfg(config)
    initialize_ray(config)
    ray.get(ray.remote(num_cpus=1)(_train).remote(config))


def _train(config: Any) -> None:
    """The whole training. SkyRL runs it in a Ray task, away from the head node.

    The run is finished here: Ray may kill the task's process as soon as the task is over.
    """
    try:
        traced(_experiment(config))(config).run()
    finally:
        run = capture.active()
        if run is not None:
            run.finish(is_crash=sys.exception() is not None)


def _experiment(config: Any) -> type[Any]:
    from skyrl.train.entrypoints.main_base import BasePPOExp

    if not config.trainer.fully_async.enabled:
        return BasePPOExp  # type: ignore[no-any-return]
    from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer

    class FullyAsyncExp(BasePPOExp):  # type: ignore[misc]
        def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
            return FullyAsyncRayPPOTrainer(*args, **kwargs)

    return FullyAsyncExp


def _begins_anew(settings: Any) -> bool:
    """Will SkyRL train from scratch? Of a checkpoint elsewhere than on this disk, nobody knows."""
    mode = str(getattr(settings, "resume_mode", None) or "none")
    folder = str(settings.ckpt_path)
    is_there = "://" in folder or Path(folder, "latest_ckpt_global_step.txt").is_file()
    return mode == "none" or (mode == "latest" and not is_there)


def _config(config: Any) -> Any:
    from skyrl.train.config import get_config_as_dict

    return get_config_as_dict(config)
