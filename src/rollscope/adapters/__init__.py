"""One module per trainer: a pure converter from its objects to `Rollout`, and a thin hook.

Every adapter offers the same two things: `convert(...) -> list[Rollout]`, which does no I/O,
and a hook that is one line for the user. If the trainer writes files that can be read back, the
adapter also offers `recognise(path) -> bool` and `read(path) -> Iterator[Rollout | Problem]`.

No trainer package is imported from here unless it is already loaded or was asked for by name.
Modules with a leading underscore are shared by all adapters:

- `_seam`: watching a trainer's functions; `_record`: from there to the run;
- `_decode`: token ids to text with the end of each token, exact to the byte;
- `_messages`: a flat row of ids and a mask to messages; `_rows`: several rows of one rollout;
- `_arrays`: one device-to-host copy per tensor per batch;
- `_settings`: a trainer's settings, noted in the writer's file;
- `_trainers`: the trainers with their versions, and what to type;
- `_launch`: runs a program that the user does not own;
- `_imports`: wait for a module without importing it; `_repeats`: names that are used twice;
- `_lines`: files of one JSON object a line.

docs/adapters.md shows how to add a trainer.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._trainers import TRAINERS

HOW_TO_RECORD = (
    ("just looking", "rollscope demo"),
    *((trainer.name, trainer.how) for trainer in TRAINERS),
    ("your own loop", 'run = rollscope.init(project="p"); run.log(rollouts, step=1)'),
    ("files you have", "rollscope import PATH"),
)
"""What to type for each trainer: shown where nothing is recorded yet. More: docs/trainers."""


def __getattr__(name: str) -> Any:
    # So that `rollscope.adapters.trl` is there without an import of its own.
    if any(trainer.adapter == name for trainer in TRAINERS):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
