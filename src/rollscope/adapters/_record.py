"""The way from a watched call to the run: convert what was seen, tell problems, and log it.

This happens on a thread of its own. Decoding takes milliseconds a rollout, and in an event loop
that also drives the inference engine the GPUs would be idle for so long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import capture
from ..capture.setup import installed as installed
from ._later import Later as Later
from ._seam import Seams, Watcher

T = TypeVar("T")


def converted(adapter: str, convert: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of `convert`. The problems that it meets are told, each once."""
    problems: list[str] = []
    try:
        return convert(*args, **kwargs, problems=problems)
    finally:
        for text in dict.fromkeys(problems):
            capture.report(f"adapter {adapter}", text)


class Recorder:
    """Watches one trainer. A subclass holds the watchers, and what they know between calls."""

    def __init__(self, adapter: str, trainer: Any) -> None:
        self.adapter = adapter
        self.trainer = trainer
        self.run: capture.Run
        self.later: Later

    def fits(
        self,
        watchers: Mapping[str, Watcher],
        name: str,
        version: str | None,
        *,
        supported: str,
        lost: str = "nothing is recorded",
    ) -> bool:
        """Can all these functions of the trainer be watched? If not, the log says why, and names
        what is `supported`. False, too, for a trainer that is watched already in a run that
        is not over."""
        before = getattr(self.trainer, "_rollscope", None)
        if before is not None and before.is_on:
            return False
        self._watchers, self._version, self._lost = watchers, version, lost
        self._seams = Seams(self.adapter, f"{name} {version or '(version not known)'}")
        return self._seams.fit(self.trainer, watchers, f"{lost}. Supported: {supported}")

    def attach(
        self,
        project: str | None = None,
        run: str | None = None,
        config: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> bool:
        """Join the run, and watch the trainer from now on. False if recording is off."""
        joined = self.join(project, run, config, **how)
        if joined:
            self.watch()
        return joined

    def join(
        self,
        project: str | None = None,
        run: str | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        named: bool = False,
        anew: bool = False,
    ) -> bool:
        """Join the run of these names; `capture.join` says what the flags mean. False: off."""
        joined = capture.join(
            project,
            run,
            adapter=self.adapter,
            version=self._version,
            seams=tuple(self._watchers),
            asked=True,
            config=config,
            named=named,
            anew=anew,
        )
        if joined is None:
            return False
        self.run, self.later = joined, Later.of(self.adapter, joined)
        return True

    @property
    def is_on(self) -> bool:
        """Has it joined a run that is not over?"""
        return hasattr(self, "run") and self.run.is_on

    def watch(self) -> None:
        """Watch the trainer, in the place of whoever has watched it before."""
        before = getattr(self.trainer, "_rollscope", None)
        if before is not None:
            before.let_go()
        self.trainer._rollscope = self
        self._seams.watch(self.trainer, self._watchers, self._lost, anew=True)

    def let_go(self) -> None:
        """Give the trainer its own functions back."""
        self._seams.restore()

    def log(self, convert: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Convert and log, on our own thread. It counts as one rollout if there is no room."""
        self.later(self._log, convert, *args, rollouts=1, **kwargs)

    def _log(self, convert: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.run.log(converted(self.adapter, convert, *args, **kwargs))
