"""The trainers, in one table: versions that are supported, and what to type."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..capture.setup import installed


class Trainer(NamedTuple):
    name: str
    package: str
    """As pip knows it."""
    adapter: str
    """The module in `rollscope.adapters`."""
    oldest: str | None
    newest: str | None
    """`0.5` stands for all of 0.5. None: it has no versions; the tests have a source of it."""
    how: str
    """What to type."""
    page: str
    """In docs/trainers."""
    tested: str
    """What the tests run."""

    @property
    def versions(self) -> str:
        if self.oldest is None or self.newest is None:
            return "the source of August 2026"
        return f"{self.oldest} to {self.newest}" if self.oldest != self.newest else self.oldest

    def about(self, version: str) -> tuple[bool, str]:
        """Is this version supported? And that in words."""
        oldest, newest = _numbers(self.oldest), _numbers(self.newest)
        if _numbers(version) < oldest:
            return False, f"not supported: {self.oldest} is the first version that is"
        if newest and _numbers(version)[: len(newest)] > newest:
            return True, f"newer than what was tested ({self.versions})"
        return True, f"supported ({self.versions})"


def _numbers(version: str | None) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version or "")
    return tuple(map(int, found.group().split("."))) if found else ()


_BOTH = "`make trainers`, ALL=1 for the oldest"
_ONE = "`make trainers`"

TRAINERS = (
    Trainer(
        "verl", "verl", "verl", "0.9", "0.9",
        "ROLLSCOPE=on python -m verl.trainer.main_ppo ...", "verl", _ONE,
    ),
    Trainer(
        "SkyRL", "skyrl", "skyrl", "0.3", "0.3",
        "trainer.override_entrypoint=rollscope.adapters.skyrl", "skyrl", _ONE,
    ),
    Trainer(
        "AReaL", "areal", "areal", "1.0", "1.0",
        "rollscope.adapters.areal.attach(trainer)", "areal", _ONE,
    ),
    Trainer(
        "open-instruct", "open-instruct", "open_instruct", None, None,
        "python -m rollscope.adapters.open_instruct grpo_fast.py ...", "open-instruct",
        "`make trainers`, where its source is",
    ),
    Trainer(
        "tinker-cookbook", "tinker-cookbook", "tinker", "0.3", "0.6",
        "python -m rollscope.adapters.tinker -m tinker_cookbook.recipes.rl_basic ...",
        "tinker-cookbook", "`make trainers`, ALL=1 for both ends",
    ),
    Trainer(
        "TRL", "trl", "trl", "0.21", "1.16",
        "rollscope.adapters.trl.attach(trainer)", "trl", _BOTH,
    ),
    Trainer(
        "verifiers", "verifiers", "verifiers", "0.4", "0.4",
        "rollscope.adapters.verifiers.attach(env)", "verifiers", _ONE,
    ),
    Trainer(
        "prime-rl", "prime-rl", "verifiers", "0.8", "0.8",
        "rollscope import verifiers RUN_DIR", "verifiers", "read only: its files",
    ),
    Trainer(
        "slime", "slime", "slime", None, None,
        "--custom-rollout-log-function-path rollscope.adapters.slime.log", "slime",
        "`make trainers`, where its source is",
    ),
)  # fmt: skip


def found() -> list[tuple[Trainer, str]]:
    """Those that are installed in this environment, with their versions."""
    return [(t, version) for t in TRAINERS if (version := installed(t.package)) is not None]
