"""The hook: what an agent or an env returns is recorded."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ... import capture
from .convert import convert


def attach(agent_or_env: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """Record what this `Agent` or `Env` runs from now on. Returns it.

    An agent hands over the trace of each `run`, an env the whole episode of each `run_slot`,
    when it is final: retries of verifiers are over by then, and their errors are in it.
    """
    with capture.guard("adapter verifiers: attach"):
        _attach(agent_or_env, project, run)
    return agent_or_env


def _attach(target: Any, project: str | None, run: str | None) -> None:
    method = next((m for m in ("run_slot", "run") if callable(getattr(target, m, None))), None)
    if getattr(target, "_rollscope", None) is not None:
        return
    if method is None:
        capture.report(
            "verifiers",
            f"{type(target).__module__}.{type(target).__name__} has neither run_slot nor run: "
            "nothing is recorded. Give attach() a v1 Agent or Env.",
        )
        return
    record = recorder(project=project, run=run, seams=(f"{type(target).__name__}.{method}",))
    if record is None:
        return
    original = getattr(target, method)

    @functools.wraps(original)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        result = await original(*args, **kwargs)
        with capture.guard(f"adapter verifiers: {method}"):
            record(result)
        return result

    setattr(target, method, traced)
    target._rollscope = record


def recorder(
    *, project: str | None = None, run: str | None = None, seams: Sequence[str] = ("recorder",)
) -> Any:
    """A function that records an `Episode` or `Trace`, for loops of your own. None when off.

    record = rollscope.adapters.verifiers.recorder(project="math", run="eval-3")
    record(episode)
    """
    import verifiers

    joined = capture.join(
        project,
        run,
        adapter="verifiers",
        version=getattr(verifiers, "__version__", None),
        seams=tuple(seams),
        asked=True,
    )
    if joined is None:
        return None

    def record(item: Any) -> None:
        with capture.guard("adapter verifiers: an episode"):
            problems: list[str] = []
            rollouts = convert(item, problems=problems)
            for rollout in rollouts:
                rollout.run = None  # the active run's name, not the record's
            for problem in sorted(set(problems)):
                capture.report("verifiers", problem)
            joined.log(rollouts)

    return record
