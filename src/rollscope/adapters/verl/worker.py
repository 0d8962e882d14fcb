"""Recording in verl's agent-loop workers: the legacy class and the v1 class alike.

`_run_agent_loop` runs one rollout from beginning to end, whatever becomes of it.
`_compute_score` has outputs and reward together. Both belong to `AgentLoopWorker`, from which the
v1 worker inherits. Text is decoded on our own thread, never in the rollouts' event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from ... import capture
from ...capture import guard
from ...capture.context import Here, here, inside
from ...capture.live import LiveRollout
from ...model import Rollout
from ...model.sample import draw
from .._decode import own
from .._record import Later, converted
from .._seam import Look, Watching
from .choice import Choice
from .convert import Job, convert, counts_versions, identity, places, step_of, task_of
from .patching import LOST, seams
from .recording import Recording, current, is_in_worker, traced

SEAMS = ("AgentLoopWorker._run_agent_loop", "AgentLoopWorker._compute_score", "rollout_trace_op")


def patch(module: ModuleType) -> None:
    """Watch `AgentLoopWorker` (of verl.experimental.agent_loop.agent_loop)."""
    patch_class(module, "AgentLoopWorker.")


def patch_class(owner: Any, prefix: str = "") -> None:
    """The methods of a worker, and of classes that inherit them."""
    seams.wrap(owner, prefix + "_run_agent_loop", _job, _run_agent_loop)
    seams.watch(owner, {prefix + "_compute_score": _compute_score}, LOST)


def patch_tools(module: ModuleType) -> None:
    """Function tools are called without verl's own decorator. So we watch their caller."""
    seams.wrap(module, "ToolAgentLoop._call_tool", lambda: None, traced)


# -- the seams -------------------------------------------------------------------------


class _Share:
    """The agent loops that one call began: a worker's share of a batch.

    All coroutines exist before the first of them runs. By then whole groups can be seen.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._begun: dict[int, Recording | None] = {}

    def begin(self, job: Job) -> Recording | None:
        """The recording of this job. The first job begins all that are waiting."""
        jobs, self.jobs = self.jobs, []
        if jobs:
            _find_places(jobs)
            chosen = _chosen(jobs)
            for other in sorted(jobs, key=_order(jobs)):
                self._begun[id(other)] = _begin(other, chosen.get(id(other)))
        return self._begun.pop(id(job), None)


def _find_places(jobs: list[Job]) -> None:
    """Find the places of rollouts in their groups, if verl does not number their sessions."""
    for job in jobs:
        if job.is_baseline:
            job.place = job.group_size  # behind those that are trained on
    jobs = [job for job in jobs if not job.is_baseline]
    if not jobs:
        return
    fields = [job.fields for job in jobs]
    groups = [_group(job) for job in jobs]
    if any(g is None for g in groups) or "session_id" in fields[0]:
        return
    rows = [f["priority"] for f in fields] if all("priority" in f for f in fields) else None
    found = places(groups, rows, jobs[0].group_size or 0)
    for job, place in zip(jobs, found, strict=True):
        job.place = place


def _chosen(jobs: list[Job]) -> dict[int, bool]:
    """Which jobs of a legacy worker's share a `Sample` keeps, if groups may be cut."""
    run = capture.active()
    sample = None if run is None else run.setup.sample
    if sample is None or any(
        job.place is None or job.is_baseline or "priority" not in job.fields for job in jobs
    ):
        return {}
    rows = [int(job.fields["priority"]) for job in jobs]
    one = jobs[0]
    found = _choice.rows(rows, one.group_size or 0, sample, one.step, str(one.validate))
    return {} if found is None else dict(zip(map(id, jobs), found, strict=True))


_choice = Choice()


def _order(jobs: list[Job]) -> Callable[[Job], tuple[bool, float]]:
    """The order in which jobs begin. If only some groups are kept and `_chosen` cannot tell which,
    the first are: by their hashes, with groups that are cut between workers last."""
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
    look = Look(method, _job)

    # Not a coroutine function: what comes before the first await is done in the batch's order.
    def run_agent_loop(*args: Any, **kwargs: Any) -> Any:
        start = functools.partial(method, *args, **kwargs)
        job = share = tokenizer = None
        with guard("adapter verl: beginning a rollout"):
            if capture.active() is not None and current.get() is None:
                job, tokenizer = look(args, kwargs)
                share = _shares.setdefault(asyncio.current_task(), _Share())
                share.jobs.append(job)
        return start() if share is None else _recorded(start, job, share, tokenizer)

    return run_agent_loop


async def _recorded(start: Callable[[], Any], job: Any, share: _Share, tokenizer: Any) -> Any:
    recording = None
    is_in_worker.set(True)  # verl runs each loop as a task, with a context of its own
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
            recording.later(
                _finish,
                recording,
                tokenizer,
                rollouts=1,
                holds=_held(job),
                instead=functools.partial(_finish_bare, recording),
            )


def _compute_score(outputs: list[Any]) -> Watching:
    recording = current.get()
    if recording is None:
        return
    try:
        yield
    except BaseException:
        recording.job.error_kind = "grader"
        raise
    finally:
        recording.job.outputs = [_frozen(output) for output in outputs]


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
    return Recording(job, live, Later.of("verl", run)) if live.is_recorded else None


def _job(
    self: Any, sampling_params: dict[str, Any], trajectory: dict[str, Any], **given: Any
) -> tuple[Job, Any]:
    """What a worker knows of a rollout that begins, and its tokenizer."""
    told = _told(self)
    validate = bool(trajectory.get("validate"))
    fields = {k: _field(v) for k, v in given.items() if k not in ("agent_name", "trace")}
    step = fields.get("global_steps", trajectory.get("step"))
    job = Job(
        step=None if told.counts_versions else step_of(None, step),
        step_is_version=told.counts_versions,
        validate=validate,
        fields=fields,
        agent_name=_name(given.get("agent_name")),
        sampling=dict(sampling_params),
        logprobs_mode=told.logprobs_mode if sampling_params.get("logprobs") else None,
        response_length=told.response_length,
        group_size=told.val_n if validate else told.n,
        # REMAX tells an agent loop nothing but to be greedy, where its siblings are not.
        is_baseline=told.is_remax and not validate and sampling_params.get("temperature") == 0,
        start=time.time(),
        token2text=told.token2text,
    )
    return job, self.tokenizer


class _Told(NamedTuple):
    """What a worker's configuration says of all its rollouts."""

    config: Any
    counts_versions: bool
    logprobs_mode: str | None
    response_length: int | None
    n: int
    val_n: int
    is_remax: bool
    """REMAX, whose other rollouts are not greedy."""
    token2text: bool


def _told(worker: Any) -> _Told:
    """Read once: OmegaConf takes 5 to 60 µs for each value."""
    known = _known.get(worker)
    if known is None or known.config is not worker.config:
        whole, config = worker.config, worker.rollout_config
        estimator = str(whole.algorithm.get("adv_estimator")).lower()
        known = _known[worker] = _Told(
            config=whole,
            counts_versions=counts_versions(whole),
            logprobs_mode=config.get("logprobs_mode"),
            response_length=config.get("response_length"),
            n=int(config.n),
            val_n=int(config.val_kwargs.n),
            is_remax=estimator.endswith("remax")
            and whole.actor_rollout_ref.rollout.temperature != 0,
            token2text=bool(config.trace.get("token2text", False)),
        )
    return known


_known: weakref.WeakKeyDictionary[Any, _Told] = weakref.WeakKeyDictionary()


def _field(value: Any) -> Any:
    """A dataset field as it is now. Rows are mutable, and tools may change them."""
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


def _finish(recording: Recording, tokenizer: Any) -> None:
    job, live, _ = recording
    try:
        (rollout,) = converted("verl", convert, job.outputs, job, tokenizer=own(tokenizer))
        _hand_over(rollout, live)
    finally:
        live.end(job.error)


def _finish_bare(recording: Recording) -> None:
    """There is no room to keep it until it is converted: it ends without its messages."""
    recording.live.lose(1)
    recording.live.end(recording.job.error)


def _held(job: Job) -> Any:
    rows = [(o.prompt_ids, o.response_ids, o.response_logprobs) for o in job.outputs or ()]
    return rows, [(call.ids, call.given) for call in job.generations]


def flush() -> None:
    """Wait until every rollout that ended is handed over."""
    run = capture.active()
    if run is not None:
        Later.of("verl", run).drain()
