"""Recording in verl's agent-loop workers: the legacy class and the v1 class alike.

`_run_agent_loop` is one rollout from beginning to end, whatever becomes of it;
`_compute_score` is where outputs and reward stand together. Both belong to
`AgentLoopWorker`, from which the v1 worker inherits. Text is decoded on a thread of our own,
never in the rollouts' event loop.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import time
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec

from ... import capture
from ...capture import guard
from ...capture.context import Here, here, inside
from ...capture.live import LiveRollout
from ...model import Rollout
from ...model.sample import draw
from .choice import Choice
from .convert import Job, convert, counts_versions, identity, places, step_of, task_of
from .patching import replace, wrap_class
from .recording import Recording, current, traced

SEAMS = ("AgentLoopWorker._run_agent_loop", "AgentLoopWorker._compute_score", "rollout_trace_op")


def patch(module: ModuleType) -> None:
    """Wrap the methods of `AgentLoopWorker` (of verl.experimental.agent_loop.agent_loop)."""
    patch_class(module.AgentLoopWorker)


def patch_class(worker: type) -> None:
    """Wrap them in this class, and in classes that have them from it."""
    wrap_class(worker, "_run_agent_loop", _run_agent_loop)
    wrap_class(worker, "_compute_score", _compute_score)


def patch_tools(module: ModuleType) -> None:
    """Function tools are called without verl's own decorator: take the place that calls them."""
    loop = module.ToolAgentLoop
    replace(loop, "_call_tool", traced(loop._call_tool))


# -- the seams -------------------------------------------------------------------------


class _Share:
    """The agent loops that one call began in one go: a worker's share of a batch.

    All coroutines exist before the first of them runs, so by then groups can be seen whole.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._begun: dict[int, Recording | None] = {}

    def begin(self, job: Job) -> Recording | None:
        """The recording of this job; all jobs that are waiting begin with the first."""
        jobs, self.jobs = self.jobs, []
        if jobs:
            _find_places(jobs)
            chosen = _chosen(jobs)
            for other in sorted(jobs, key=_order(jobs)):
                self._begun[id(other)] = _begin(other, chosen.get(id(other)))
        return self._begun.pop(id(job), None)


def _find_places(jobs: list[Job]) -> None:
    """The places in their groups of rollouts whose sessions verl does not number."""
    fields = [job.fields for job in jobs]
    groups = [_group(job) for job in jobs]
    if any(g is None for g in groups) or "session_id" in fields[0]:
        return
    rows = [f["priority"] for f in fields] if all("priority" in f for f in fields) else None
    found = places(groups, rows, jobs[0].group_size or 0)
    for job, place in zip(jobs, found, strict=True):
        job.place = place


def _chosen(jobs: list[Job]) -> dict[int, bool]:
    """Which of a legacy worker's share a `Sample` keeps, where groups may be cut; else empty."""
    run = capture.active()
    sample = None if run is None else run.setup.sample
    if sample is None or any(job.place is None or "priority" not in job.fields for job in jobs):
        return {}
    rows = [int(job.fields["priority"]) for job in jobs]
    one = jobs[0]
    found = _choice.rows(rows, one.group_size or 0, sample, one.step, str(one.validate))
    return {} if found is None else dict(zip(map(id, jobs), found, strict=True))


_choice = Choice()


def _order(jobs: list[Job]) -> Callable[[Job], tuple[bool, float]]:
    """Where only some groups are kept and `_chosen` cannot tell which, the first ones are: in
    the order of their hashes, those that are cut between workers last."""
    sizes = Counter(_group(job) for job in jobs)

    def order(job: Job) -> tuple[bool, float]:
        is_cut = "session_id" not in job.fields and sizes[_group(job)] < (job.group_size or 1)
        return is_cut, draw(0, job.step, str(task_of(job.fields)))

    return order


def _group(job: Job) -> Any:
    return job.fields.get("uid", job.fields.get("index"))


_shares: weakref.WeakKeyDictionary[Any, _Share] = weakref.WeakKeyDictionary()
"""By the task that began them."""


def _run_agent_loop(method: Callable[..., Any]) -> Callable[..., Any]:
    # Not a coroutine function: what stands before the first await is done in the batch's order.
    @functools.wraps(method)
    def run_agent_loop(
        self: Any, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        start = functools.partial(method, self, sampling_params, trajectory, **kwargs)
        job = share = None
        with guard("adapter verl: beginning a rollout"):
            if capture.active() is not None and current.get() is None:
                job = _job(self, sampling_params, trajectory, kwargs)
                share = _shares.setdefault(asyncio.current_task(), _Share())
                share.jobs.append(job)
        return start() if job is None or share is None else _recorded(self, start, job, share)

    return run_agent_loop


async def _recorded(worker: Any, start: Callable[[], Any], job: Job, share: _Share) -> Any:
    recording = None
    with guard("adapter verl: beginning a rollout"):
        recording = share.begin(job)
    if recording is None:
        return await start()
    token = current.set(recording)
    try:
        with inside(Here(recording.live, None, here().is_tracing)):
            return await start()
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


def _begin(job: Job, is_chosen: bool | None) -> Recording | None:
    run = capture.active()
    if run is None:
        return None
    key, index = identity(job)
    live = run.rollout(
        is_chosen=is_chosen,
        key=key,
        step=job.step,
        split="eval" if job.validate else "train",
        task=task_of(job.fields),
        index=index,
        start=job.start,
    )
    live.begin()
    return Recording(job, live) if live.is_recorded else None


def _job(
    worker: Any, sampling: dict[str, Any], trajectory: dict[str, Any], kwargs: dict[str, Any]
) -> Job:
    config = worker.rollout_config
    validate = bool(trajectory.get("validate"))
    fields = {k: _field(v) for k, v in kwargs.items() if k not in ("agent_name", "trace")}
    return Job(
        step=step_of(worker.config, fields.get("global_steps", trajectory.get("step"))),
        step_is_version=counts_versions(worker.config),
        validate=validate,
        fields=fields,
        agent_name=_name(kwargs.get("agent_name")),
        sampling=dict(sampling),
        logprobs_mode=config.get("logprobs_mode") if sampling.get("logprobs") else None,
        response_length=config.get("response_length"),
        group_size=int(config.val_kwargs.n if validate else config.n),
        start=time.time(),
        token2text=bool(config.trace.get("token2text", False)),
    )


def _field(value: Any) -> Any:
    """A dataset field as it is now: rows are mutable, and tools may change them."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:
        return [dict(v) if isinstance(v, dict) else v for v in value]
    return value


def _name(value: Any) -> str | None:
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
