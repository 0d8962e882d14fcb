"""Recording in verl's agent-loop workers: the legacy class and the v1 class alike.

`_run_agent_loop` is one rollout from beginning to end, whatever becomes of it;
`_compute_score` is where outputs and reward stand together. Both belong to
`AgentLoopWorker`, from which the v1 worker inherits. Text is decoded on a thread of our own,
never in the rollouts' event loop.
"""

from __future__ import annotations

import copy
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec

from ... import capture
from ...capture import guard
from ...capture.context import Here, here, inside
from ...capture.live import LiveRollout
from ...model import Rollout
from .convert import Job, convert, identity, places, task_of
from .recording import Recording, current, traced

SEAMS = ("AgentLoopWorker._run_agent_loop", "AgentLoopWorker._compute_score", "rollout_trace_op")

_places: ContextVar[Iterator[int | None] | None] = ContextVar("rollscope_verl_places", default=None)


def patch(module: ModuleType) -> None:
    """Wrap the methods of `AgentLoopWorker` (of verl.experimental.agent_loop.agent_loop)."""
    worker = module.AgentLoopWorker
    worker.generate_sequences = _generate_sequences(worker.generate_sequences)
    worker._run_agent_loop = _run_agent_loop(worker._run_agent_loop)
    worker._compute_score = _compute_score(worker._compute_score)


def patch_tools(module: ModuleType) -> None:
    """Function tools are called without verl's own decorator: take the place that calls them."""
    loop = module.ToolAgentLoop
    loop._call_tool = traced(loop._call_tool)


# -- the seams -------------------------------------------------------------------------


def _generate_sequences(method: Callable[..., Any]) -> Callable[..., Any]:
    """The legacy worker's share of a batch: the only place that sees whole groups."""

    @functools.wraps(method)
    async def generate_sequences(self: Any, batch: Any) -> Any:
        with guard("adapter verl: places in groups"):
            _places.set(iter(_places_of(self, batch)))
        return await method(self, batch)

    return generate_sequences


def _places_of(worker: Any, batch: Any) -> Sequence[int | None]:
    columns = batch.non_tensor_batch
    groups = columns.get("uid", columns.get("index"))
    if groups is None:
        return [None] * len(batch)
    rollout, validate = worker.rollout_config, bool(batch.meta_info.get("validate", False))
    n = int(rollout.val_kwargs.n if validate else rollout.n)
    return places(list(groups), columns.get("priority"), n)


def _run_agent_loop(method: Callable[..., Any]) -> Callable[..., Any]:
    # Not a coroutine function: the batch's rows are told apart by the order of the calls.
    @functools.wraps(method)
    def run_agent_loop(
        self: Any, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        coroutine = method(self, sampling_params, trajectory, **kwargs)
        recording = None
        with guard("adapter verl: beginning a rollout"):
            iterator = _places.get()
            place = next(iterator, None) if iterator is not None else None
            recording = _begin(self, sampling_params, trajectory, kwargs, place)
        return coroutine if recording is None else _recorded(self, coroutine, recording)

    return run_agent_loop


async def _recorded(worker: Any, coroutine: Any, recording: Recording) -> Any:
    job, live = recording
    token = current.set(recording)
    try:
        with guard("adapter verl: beginning a rollout"):
            live.begin()
        with inside(Here(live, None, here().is_tracing)):
            return await coroutine
    except BaseException as error:
        job.error = error
        raise
    finally:
        current.reset(token)
        with guard("adapter verl: ending a rollout"):
            job.end = time.time()
            _converter.submit(recording, worker.tokenizer)


def _compute_score(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def compute_score(self: Any, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        recording = current.get()
        try:
            await method(self, outputs, kwargs)
        except BaseException:
            if recording is not None:
                recording.job.error_kind = "grader"
            raise
        finally:
            if recording is not None:
                with guard("adapter verl: reading the outputs"):
                    recording.job.outputs = [_frozen(output) for output in outputs]

    return compute_score


# -- snapshots -------------------------------------------------------------------------


def _begin(
    worker: Any,
    sampling: dict[str, Any],
    trajectory: dict[str, Any],
    kwargs: dict[str, Any],
    place: int | None,
) -> Recording | None:
    run = capture.active()
    if run is None:
        return None
    config = worker.rollout_config
    fields = {k: _field(v) for k, v in kwargs.items() if k not in ("agent_name", "trace")}
    step = fields.get("global_steps", trajectory.get("step"))
    job = Job(
        step=_step(step),
        validate=bool(trajectory.get("validate")),
        fields=fields,
        agent_name=_plain_name(kwargs.get("agent_name")),
        sampling=dict(sampling),
        logprobs_mode=config.get("logprobs_mode") if sampling.get("logprobs") else None,
        response_length=config.get("response_length"),
        place=place,
        start=time.time(),
        token2text=bool(config.trace.get("token2text", False)),
    )
    key, index = identity(job)
    split = "eval" if job.validate else "train"
    live = run.rollout(
        key=key, step=job.step, split=split, task=task_of(fields), index=index, start=job.start
    )
    return Recording(job, live) if live.is_recorded else None


def _field(value: Any) -> Any:
    """A dataset field as it is now: rows are mutable, and tools may change them."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:
        return [dict(v) if isinstance(v, dict) else v for v in value]
    return value


def _step(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, RuntimeError):  # v1 hands the whole column over
        return None


def _plain_name(value: Any) -> str | None:
    return None if value is None else str(value)


def _frozen(output: Any) -> Any:
    return SimpleNamespace(
        prompt_ids=list(output.prompt_ids),
        response_ids=list(output.response_ids),
        response_mask=list(output.response_mask),
        response_logprobs=None
        if output.response_logprobs is None
        else list(output.response_logprobs),
        reward_score=output.reward_score,
        num_turns=output.num_turns,
        metrics=dict(vars(output.metrics)),
        extra_fields=dict(output.extra_fields or {}),
    )


# -- decoding, off the event loop ------------------------------------------------------


def _hand_over(rollout: Rollout, live: LiveRollout) -> None:
    head = msgspec.structs.asdict(rollout)
    messages, spans, _ = head.pop("messages"), head.pop("spans"), head.pop("id")
    live.set(**{name: value for name, value in head.items() if value is not None})
    for message in messages:
        live.add(message)
    for span in spans:
        live.put_span(span)


class _Converter:
    """One thread that decodes and hands over. verl's own tokenizer is never used on it: a
    tokenizer that one thread decodes with while another pads with it raises in either."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollscope-verl")
        self._copies: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._pending: set[Future[None]] = set()

    def submit(self, recording: Recording, tokenizer: Any) -> None:
        future = self._pool.submit(self._finish, recording, tokenizer)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def _finish(self, recording: Recording, tokenizer: Any) -> None:
        job, live = recording
        with guard("adapter verl: converting a rollout"):
            problems: list[str] = []
            (rollout,) = convert(
                job.outputs, job, tokenizer=self._copy(tokenizer), problems=problems
            )
            for problem in problems:
                capture.report("adapter verl", problem)
            _hand_over(rollout, live)
        live.end(job.error)

    def _copy(self, tokenizer: Any) -> Any:
        if tokenizer is None:
            return None
        if tokenizer not in self._copies:
            self._copies[tokenizer] = copy.deepcopy(tokenizer)
        return self._copies[tokenizer]

    def flush(self) -> None:
        for future in list(self._pending):
            future.result()


_converter = _Converter()
flush = _converter.flush
"""Wait until every rollout that ended is handed over."""
