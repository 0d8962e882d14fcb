"""open-instruct: every rollout of GRPO training, trained, dropped or evaluated.

    python -m rollscope.adapters.open_instruct open_instruct/grpo_fast.py <your options>

or, as the first lines of a script of your own:

    import rollscope.adapters.open_instruct
    rollscope.adapters.open_instruct.install()

`--save_traces` is not needed. What it has written is read by
`rollscope import open-instruct DIRECTORY`. `docs/trainers/open-instruct.md` says what is
captured. `convert` (a merged batch) and `convert_group` (one prompt's samples) are the pure parts.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ... import capture
from ...capture.cluster import share
from .. import _launch
from .convert import convert, convert_group
from .files import read, recognise

__all__ = ["convert", "convert_group", "install", "main", "read", "recognise"]


def install() -> None:
    """Record what open-instruct does in this process and in its actors, from now on.

    Call it before the script imports names from `open_instruct.data_loader`. With
    `ROLLSCOPE=off` nothing is touched.
    """
    from ...capture.settings import setting
    from .hook import MODULE, SEAMS, recorder, seams

    with capture.guard("adapter open-instruct: install"):
        if setting("ROLLSCOPE") is False:
            return
        loader = importlib.import_module(MODULE)
        seams.trainer = f"open-instruct in {loader.__file__}"
        lost = "rollouts or their fates are not recorded. Supported: open-instruct of August 2026"
        seams.watch(loader, {name: getattr(recorder, name) for name in SEAMS}, lost)
        for module, name, watcher in (
            ("open_instruct.model_utils", "print_rich_single_line_metrics", recorder.metrics),
            ("open_instruct.grpo_utils", "maybe_evaluate", recorder.maybe_evaluate),
        ):
            if module in sys.modules:
                lost = "metrics are not recorded. Supported: open-instruct of August 2026"
                seams.watch(sys.modules[module], {name: watcher}, lost)
        _name_the_run(loader)


def main(arguments: list[str]) -> None:
    """Run a script of open-instruct with rollouts recorded."""
    _launch.main(
        arguments,
        _install_first,
        "python -m rollscope.adapters.open_instruct open_instruct/grpo_fast.py ...",
    )


def _install_first() -> None:
    for module in ("ray", "open_instruct.model_utils", "open_instruct.grpo_utils"):
        importlib.import_module(module)
    install()
    share(asked=True)  # Ray's actors may live on a cluster that was started without our settings


def _name_the_run(loader: Any) -> None:
    """Learn project and run from open-instruct. The project is an option of its parser. The
    script makes the run's name and gives it to the actor that prepares the data."""
    from .hook import methods, recorder

    utils = sys.modules.get("open_instruct.utils")
    if utils is not None:
        options = {"ArgumentParserPlus.parse_args_into_dataclasses": recorder.options}
        methods.watch(utils, options, "the project has no name of its own")
    actor = getattr(loader, "DataPreparationActor", None)
    if actor is not None and not isinstance(actor, _NamedActor):
        loader.DataPreparationActor = _NamedActor(actor)


class _NamedActor:
    """Ray's actor class, except that the run begins when the actor is made."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def options(self, *args: Any, **kwargs: Any) -> Any:
        return _NamedActor(self._actor.options(*args, **kwargs))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        with capture.guard("adapter open-instruct: DataPreparationActor"):
            from .hook import recorder

            recorder.name = kwargs.get("run_name") or recorder.name
            recorder.joined()
        return self._actor.remote(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__ray_metadata__":
            raise AttributeError(name)
        return getattr(self._actor, name)
