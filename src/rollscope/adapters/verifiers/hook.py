"""The hook: what an agent or an env returns is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import capture
from .._record import Recorder, converted
from .._seam import Watching
from .convert import convert


def attach(agent_or_env: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """Record what this `Agent` or `Env` runs from now on. Returns it.

    An agent hands over the trace of each `run`, an env the whole episode of each `run_slot`,
    when it is final: retries of verifiers are over by then, and their errors are in it.
    """
    with capture.guard("adapter verifiers: attach"):
        recorder = Recorder("verifiers", agent_or_env)

        def watch() -> Watching:
            result = yield
            _record(recorder.run, result)

        method = "run_slot" if callable(getattr(agent_or_env, "run_slot", None)) else "run"
        supported = "a v1 Agent, which has run, or Env, which has run_slot"
        if recorder.fits({method: watch}, "verifiers", _version(), supported=supported):
            recorder.attach(project, run, named=bool(project or run))
    return agent_or_env


def recorder(*, project: str | None = None, run: str | None = None) -> Callable[[Any], None] | None:
    """A function that records an `Episode` or `Trace`, for loops of your own. None when off.

    record = rollscope.adapters.verifiers.recorder(project="math", run="eval-3")
    record(episode)
    """
    joined = capture.join(
        project,
        run,
        adapter="verifiers",
        version=_version(),
        seams=("recorder",),
        asked=True,
        named=bool(project or run),
    )
    if joined is None:
        return None

    def record(item: Any) -> None:
        with capture.guard("adapter verifiers: an episode"):
            _record(joined, item)

    return record


def _record(run: capture.Run, item: Any) -> None:
    rollouts = converted("verifiers", convert, item)
    for rollout in rollouts:
        rollout.run = None  # the active run's name, not the record's
    run.log(rollouts)


def _version() -> str | None:
    import verifiers

    return getattr(verifiers, "__version__", None)
