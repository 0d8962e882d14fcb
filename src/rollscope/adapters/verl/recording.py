"""What happens inside one agent loop, noted while it runs.

The job of the current task is a context variable, so that any number of loops may run
interleaved in one event loop. Noting costs little. Token lists are copied once per call of the
engine. Other arguments are snapshotted without their token lists, because verl hands the whole
prompt to every call, and keeping it each time would grow with the square of the turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from ... import capture
from ...capture.context import Here, here, inside
from ...capture.live import LiveRollout
from ...model import Span, ToolCall
from ...model.normalise import as_error
from .._record import Later
from .._seam import Watching
from .convert import Generation, Job, note_generation
from .patching import seams


class Recording(NamedTuple):
    """One agent loop that is being recorded."""

    job: Job
    live: LiveRollout
    later: Later
    """Where it is decoded when it has ended: not in the rollouts' event loop."""


current: ContextVar[Recording | None] = ContextVar("rollscope_verl", default=None)

is_in_worker: ContextVar[bool] = ContextVar("rollscope_verl_worker", default=False)
"""Is an agent loop of a worker running, recorded or not?"""

_LONG = 16  # a list of more numbers than this is a row of tokens, not an argument


def traced(method: Callable[..., Any]) -> Any:
    """The method, with its calls inside an agent loop recorded as spans."""
    label = method.__qualname__

    def call(**arguments: Any) -> Watching:
        recording = current.get()
        if recording is None:
            return
        span = _begin(recording, label, arguments)
        try:
            with inside(Here(recording.live, span.id, here().is_tracing)):
                result = yield
        except BaseException as error:
            _end(recording.job, span, error=error)
            raise
        _end(recording.job, span, result)

    return seams.watched(method, call, f"span {label}")


def attributes() -> Watching:
    """verl's `rollout_trace_attr`. A rollout is what a worker runs; elsewhere it marks none."""
    if capture.active() is not None and not is_in_worker.get():
        capture.report(
            "adapter verl",
            "verl's rollout_trace_attr marks no rollout outside of an agent-loop worker; nothing "
            "is recorded there. rollscope.rollout_trace_attr takes the same arguments and records",
        )
    yield


def _begin(recording: Recording, label: str, arguments: dict[str, Any]) -> Span:
    arguments.pop("self", None)
    prompt = arguments.get("prompt_ids")
    span = Span(
        name=label,
        id=recording.live.new_span_id(),
        parent=here().span,
        start=time.time(),
        inputs={k: snapshot(v) for k, v in arguments.items() if k not in _NEVER},
        # Taken out again when the call ends.
        meta={} if prompt is None else {"prompt_ids": list(prompt)},
    )
    recording.job.spans.append(span)
    return span


_NEVER = frozenset({"agent_data", "raw_prompt", "multi_modal_data"})
"""Arguments that hold the whole state of the loop, or stand in the rollout anyway."""


def _end(job: Job, span: Span, result: Any = None, error: BaseException | None = None) -> None:
    span.end = time.time()
    prompt = span.meta.pop("prompt_ids", None)
    if error is not None:
        span.error = as_error(error)
        return
    span.outputs = snapshot(result)
    if prompt is not None and getattr(result, "token_ids", None) is not None:
        note_generation(job, prompt, _generation(span, result))
    elif span.name.endswith("extract_tool_calls"):
        _note_calls(job, result)


def _generation(span: Span, output: Any) -> Generation:
    extra = getattr(output, "extra_fields", None) or {}
    version = extra.get("global_steps")
    return Generation(
        span=str(span.id),
        parent=span.parent,
        ids=list(output.token_ids),
        stop_reason=getattr(output, "stop_reason", None),
        version=None if version is None else int(version),
        start=span.start,
        end=span.end,
    )


def _note_calls(job: Job, result: Any) -> None:
    """What verl's parser read out of the newest generation: `(content, calls)`."""
    spans = {g.span for g in job.generations}
    turns = [g for g in job.generations if g.parent not in spans]
    if not turns or not isinstance(result, tuple) or len(result) != 2:
        return
    calls = [
        ToolCall(
            id=getattr(call, "tool_call_id", None),
            name=getattr(call, "name", None),
            arguments=getattr(call, "arguments", None),
        )
        for call in result[1]
    ]
    job.calls.append((turns[-1].span, calls))


def snapshot(value: Any, depth: int = 0) -> Any:
    """A copy for the record: no token lists, no arrays, no foreign objects."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > 6:
        return f"<{type(value).__name__}>"
    if isinstance(value, (list, tuple)):
        if len(value) > _LONG and isinstance(value[0], (int, float)):
            return {"length": len(value)}
        return [snapshot(v, depth + 1) for v in value]
    if isinstance(value, Mapping):
        return {str(k): snapshot(v, depth + 1) for k, v in value.items()}
    shape = getattr(value, "shape", None)
    if shape is not None:
        scalar = len(shape) == 0 and hasattr(value, "item")
        return value.item() if scalar else {"shape": [int(n) for n in shape]}
    if hasattr(type(value), "model_fields") or hasattr(value, "__dataclass_fields__"):
        fields = {k: v for k, v in vars(value).items() if v is not None}
        return {k: snapshot(v, depth + 1) for k, v in fields.items()}
    return f"<{type(value).__name__}>"
