"""verl's two names, with verl's meaning. To move code from `verl.utils.rollout_trace`, change the
import.

`rollout_trace_attr` says which rollout the code inside belongs to; `rollout_trace_op` records
the calls of a method. An op outside any `rollout_trace_attr` is recorded as a rollout of its
own, as verl's backends do; inside `trace=False` nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .begin import active
from .context import Here, here, inside
from .live import LiveSpan
from .ops import Marked, traced
from .problems import guard

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def rollout_trace_attr(
    sample_index: Any = None,
    step: int | None = None,
    rollout_n: int | None = None,
    name: str = "rollout_trace",
    validate: bool = False,
    trace: bool = True,
) -> Iterator[None]:
    """Record what happens inside as one rollout.

    `sample_index` is the task, `rollout_n` its index in the group, `validate` the split
    `eval`. `trace=False` records nothing inside, whatever is nested in it.
    """
    run = active()
    if run is None or not here().is_tracing:
        yield
    elif not trace:
        with inside(Here(None, None, False)):
            yield
    else:
        with run.rollout(
            task=None if sample_index is None else str(sample_index),
            step=step,
            index=rollout_n,
            split="eval" if validate else "train",
            meta={} if name == "rollout_trace" else {"name": name},
        ):
            yield


def rollout_trace_op(function: F) -> F:
    """Record the calls of a method (or function), sync or async, as spans."""
    return traced(function, None, _begin)  # type: ignore[no-any-return]


class _OwnRollout(LiveSpan):
    """A span that is a rollout of its own: it begins and ends it."""

    def end(self, error: BaseException | None = None) -> None:
        super().end(error)
        self._rollout.end(error)


def _begin(function: Marked, args: Any, kwargs: Any) -> LiveSpan | None:
    place = here()
    if not place.is_tracing:
        return None
    if place.rollout is not None:
        return function.span(place.rollout, args, kwargs) if place.rollout.is_recorded else None
    run = active()
    if run is None:
        return None
    with guard("rollout_trace_op"):
        rollout = run.rollout(meta={"name": function.name})
        rollout.begin()
        return function.span(rollout, args, kwargs, _OwnRollout)
    return None
