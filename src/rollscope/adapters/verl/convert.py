"""verl's agent-loop outputs to `Rollout`. Pure: nothing is imported from verl, no I/O.

One agent loop is one rollout. With verl's v1 trainer it may return several outputs (the
context was rewritten on the way); each becomes a conversation of its own inside the rollout,
because each is one training row.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...model import Message, Rollout, Span, ToolCall, prompt_task
from ...model.chat import from_chat
from ...model.conversation import wrote
from ...model.normalise import as_error
from .._arrays import where
from .._decode import decode
from .._messages import after_prompt, split
from .generations import Generation as Generation
from .generations import in_common, prompts, versions

TRUNCATED = frozenset({"length", "max_tokens", "max_new_tokens"})
"""Stop reasons of the engines that mean: there was more to say."""


BASELINE = "baseline: REMAX subtracts its reward and does not train on it"


class Job(msgspec.Struct, kw_only=True):
    """What verl knows about one agent loop besides its outputs."""

    step: int | None = None
    step_is_version: bool = False
    """verl counts its steps by the weights here: see `counts_versions`."""
    validate: bool = False
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The dataset's row and verl's ids: `uid`, `session_id`, `raw_prompt`, `extra_info`, ..."""
    agent_name: str | None = None
    sampling: Mapping[str, Any] = msgspec.field(default_factory=dict)
    logprobs_mode: str | None = None
    response_length: int | None = None
    group_size: int | None = None
    """`rollout.n` (or `val_kwargs.n`): how many rollouts verl makes of one prompt."""
    place: int | None = None
    """Its place in its group, where verl does not number the sessions: see `places`."""
    start: float | None = None
    end: float | None = None
    spans: list[Span] = msgspec.field(default_factory=list)
    is_baseline: bool = False
    """REMAX generates it greedily, and subtracts its reward from those of its siblings."""
    generations: list[Generation] = msgspec.field(default_factory=list)
    newest: list[int] = msgspec.field(default_factory=list)
    """Prompt and answer of the last of them."""
    calls: list[tuple[str, list[ToolCall]]] = msgspec.field(default_factory=list)
    """Tool calls that verl's parser found, each list with the span of the generation it read."""
    outputs: list[Any] | None = None
    error: BaseException | None = None
    error_kind: str | None = None
    token2text: bool = False
    """verl's `trace.token2text`: the `run` span's output also holds the whole text."""


def note_generation(job: Job, prompt: list[int], call: Generation) -> None:
    """Keep a call of the engine, and of its prompt only what the call before did not have."""
    before = job.newest
    call.shared = len(before) if prompt[: len(before)] == before else in_common(before, prompt)
    call.given = prompt[call.shared :]
    job.newest = prompt + call.ids
    job.generations.append(call)


def convert(
    outputs: Sequence[Any] | None,
    job: Job,
    *,
    tokenizer: Any = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The rollout of one agent loop, from its `AgentLoopOutput`s.

    No outputs: it failed, was cancelled or gave nothing back; what the engine had written
    until then is kept.
    """
    problems = problems if problems is not None else []
    fields = job.fields
    key, index = identity(job)
    rollout = Rollout(
        key=key,
        step=job.step,
        split="eval" if job.validate else "train",
        dataset=_text(fields.get("data_source")),
        group=_text(fields.get("uid")),
        index=index,
        environment=job.agent_name,
        start=job.start,
        end=job.end,
        spans=job.spans,
        sampling=_sampling(job),
        reference=_mapping(fields.get("reward_model")).get("ground_truth"),
        meta=_dataset_meta(fields),
    )
    if outputs:
        _add_outputs(rollout, outputs, job, tokenizer, problems)
    else:
        _add_unfinished(rollout, job, tokenizer, problems)
    if job.step_is_version and rollout.policy_version is not None:
        # Validation is of the weights that wrote it; training makes the next ones.
        rollout.step = rollout.policy_version + (not job.validate)
    if job.is_baseline:
        rollout.meta["baseline"] = "REMAX"
        if rollout.fate == "scored":
            rollout.fate, rollout.fate_reason = "dropped", BASELINE
    rollout.task = task_of(fields)
    _link_generations(rollout, job)
    _link_tools(rollout, job)
    if job.token2text and outputs and tokenizer is not None:
        _add_texts(rollout, outputs[-1], tokenizer)
    if job.error is not None:
        _add_error(rollout, job)
    return [rollout]


def identity(job: Job) -> tuple[str | None, int | None]:
    """The key of this rollout, and its place in its group.

    The v1 trainer numbers the sessions of a prompt. The legacy trainer numbers only the rows
    of the whole batch (`priority`). Without a uid and one of these numbers there is no key.
    """
    uid, session = job.fields.get("uid"), _whole(job.fields.get("session_id"))
    index = job.place if session is None else session
    number = session if session is not None else _whole(job.fields.get("priority"))
    number = index if number is None else number
    if uid is None or number is None:
        return None, index
    return row_key("eval" if job.validate else "train", job.step, uid, number), index


def step_of(config: Mapping[str, Any] | None, value: Any) -> int | None:
    """The training step, from what verl calls `global_steps` of a prompt."""
    step = None if counts_versions(config) else _whole(value)
    return None if step is None or step < 0 else step  # -1: verl was told none


def counts_versions(config: Mapping[str, Any] | None) -> bool:
    """Is this verl's `fully_async_policy`? It generates without a step: its `global_steps` are
    the number of the prompt there, and its own metrics stand at the version of the weights."""
    return config is not None and config.get("async_training") is not None


def places(groups: Sequence[Any], rows: Sequence[Any] | None, n: int) -> list[int | None]:
    """The place of each row of a worker's share in its group, where it can be proven.

    verl repeats each prompt n times in a row and then cuts the batch for its workers; its own
    `rollout_n` starts again at each cut and is never used. With the rows' numbers in the whole
    batch the place is the number modulo n, if blocks and groups agree. Without them, the order
    counts only for groups of which all n rows are here. All others are None.
    """
    if n < 1:
        return [None] * len(groups)
    if rows is None:
        seen: dict[Any, int] = {}
        order = [seen[g] - 1 for g in groups if seen.update({g: seen.get(g, 0) + 1}) is None]
        return [o if seen[g] == n else None for g, o in zip(groups, order, strict=True)]
    blocks: dict[Any, set[int]] = {}
    owners: dict[int, set[Any]] = {}
    for group, row in zip(groups, rows, strict=True):
        blocks.setdefault(group, set()).add(int(row) // n)
        owners.setdefault(int(row) // n, set()).add(group)
    return [
        int(row) % n if len(blocks[group]) == 1 and len(owners[int(row) // n]) == 1 else None
        for group, row in zip(groups, rows, strict=True)
    ]


def row_key(split: str, step: int | None, uid: Any, number: Any) -> str:
    """verl's name of a rollout. Step and split are part of it: datasets may bring their own
    uids, which come back at every step."""
    return f"{split}/{step}/{uid}/{number}"


# -- outputs ---------------------------------------------------------------------------


def _add_outputs(
    rollout: Rollout, outputs: Sequence[Any], job: Job, tokenizer: Any, problems: list[str]
) -> None:
    for output in outputs:
        messages = _row(output, job, tokenizer, problems)
        if rollout.messages and messages:
            messages[0].parent = -1
        rollout.messages += messages
    last = outputs[-1]
    extra = dict(last.extra_fields or {})
    info = _mapping(extra.pop("reward_extra_info", None))
    rollout.reward = None if last.reward_score is None else float(last.reward_score)
    rollout.rewards = {str(k): float(v) for k, v in info.items() if _is_number(v)}
    rollout.reward_texts = {str(k): v for k, v in info.items() if isinstance(v, str)}
    rollout.fate = "generated" if rollout.reward is None else "scored"
    rollout.policy_version = _version(extra)
    if job.generations:
        rollout.stop_reason = job.generations[-1].stop_reason
    full = job.response_length is not None and len(last.response_ids) >= job.response_length
    if rollout.stop_reason is not None or full:
        rollout.truncated = full or rollout.stop_reason in TRUNCATED
    rollout.meta |= {"num_turns": last.num_turns, "metrics": _plain_metrics(last.metrics)}
    if len(outputs) > 1:
        rollout.meta["outputs"] = len(outputs)
    rollout.meta |= {k: v for k, v in extra.items() if k not in _LEFT_OUT and v not in (None, [])}


_LEFT_OUT = frozenset({"raw_prompt", "teacher_ids", "teacher_logprobs", "routed_experts", "extras"})
"""Extra fields that stand elsewhere, or are per-token data of other models."""


def _row(output: Any, job: Job, tokenizer: Any, problems: list[str]) -> list[Message]:
    """One `AgentLoopOutput` as messages with all its tokens."""
    prompt, response = list(output.prompt_ids), list(output.response_ids)
    mask = list(output.response_mask)
    if len(mask) != len(response):
        problems.append(
            f"response_mask: {len(mask)} values for {len(response)} response tokens; left out"
        )
        mask = []
    logprobs = output.response_logprobs
    if logprobs is not None and len(logprobs) == len(mask) and not all(mask):
        # verl fills the places of tool tokens with zeros, which would read as certainty.
        logprobs = where(mask, logprobs)
    known = [0] * len(prompt) + mask if len(mask) == len(response) else None
    return split(
        prompt + response,
        tokenizer=tokenizer,
        sampled=known,
        streams={
            "mask": known,
            "logprob": after_prompt(len(prompt), logprobs),
            "version": after_prompt(len(prompt), versions(job.generations, prompt, response, mask)),
        },
        chat=_chat(job.fields),
        problems=problems,
    )


def _add_unfinished(rollout: Rollout, job: Job, tokenizer: Any, problems: list[str]) -> None:
    """What the engine saw and wrote before the loop ended without an output."""
    rollout.fate = "rejected"
    rollout.fate_reason = "the agent loop gave no output back"
    asked = zip(job.generations, prompts(job.generations), strict=True)
    turns = [(g, prompt) for g, prompt in asked if not _is_nested(g, job)]
    if not turns:
        rollout.messages = _chat_messages(job.fields)
        return
    last, prompt = turns[-1]
    ids = prompt + last.ids
    mask = [0] * len(ids)
    for turn, prompt in turns:
        begin, end = len(prompt), len(prompt) + len(turn.ids)
        if ids[begin:end] == turn.ids:
            mask[begin:end] = [1] * len(turn.ids)
    rollout.stop_reason = last.stop_reason
    rollout.policy_version = last.version
    rollout.messages = split(
        ids,
        tokenizer=tokenizer,
        sampled=mask,
        streams={"mask": mask},
        chat=_chat(job.fields),
        problems=problems,
    )


def _add_error(rollout: Rollout, job: Job) -> None:
    error, kind = job.error, job.error_kind
    rollout.fate = "failed"
    rollout.error = as_error(error, kind)
    cancelled = type(error).__name__ in ("CancelledError", "TimeoutError")
    reason = "the reward could not be computed" if kind == "grader" else "the agent loop raised"
    rollout.fate_reason = "cancelled" if cancelled else reason


def _add_texts(rollout: Rollout, output: Any, tokenizer: Any) -> None:
    for span in rollout.spans:
        if span.name.endswith(".run") and isinstance(span.outputs, dict):
            span.outputs["prompt_text"] = decode(tokenizer, output.prompt_ids).text
            span.outputs["response_text"] = decode(tokenizer, output.response_ids).text


# -- what belongs together -------------------------------------------------------------


def _is_nested(generation: Generation, job: Job) -> bool:
    return any(generation.parent == other.span for other in job.generations)


def _link_generations(rollout: Rollout, job: Job) -> None:
    """Times and stop reasons to the messages that the calls wrote, matched by their tokens."""
    spans = {span.id: span for span in rollout.spans}
    place = 0
    for generation in job.generations:
        if _is_nested(generation, job):
            continue
        for number in range(place, len(rollout.messages)):
            if _wrote(rollout.messages[number], generation.ids):
                message, place = rollout.messages[number], number + 1
                message.start, message.end = generation.start, generation.end
                message.stop_reason = generation.stop_reason
                if generation.span in spans:
                    spans[generation.span].message = number
                break


def _wrote(message: Message, ids: list[int]) -> bool:
    """Is this message what the call wrote (or its beginning, cut at the response length)?"""
    if not message.sampled or message.tokens is None:
        return False
    begin, end = wrote(message)
    return begin < end and ids[: end - begin] == message.tokens.ids[begin:end]


def _link_tools(rollout: Rollout, job: Job) -> None:
    """Tool calls to the messages that asked for them, and their names to the answers."""
    made = {span.id: span.message for span in rollout.spans if span.message is not None}
    for span, calls in job.calls:
        number = made.get(span)
        if number is None or not calls:
            continue
        rollout.messages[number].tool_calls = calls
        answers = []
        for message in rollout.messages[number + 1 :]:
            if message.role != "tool":
                break
            answers.append(message)
        if len(answers) == len(calls):
            for message, call in zip(answers, calls, strict=True):
                message.name, message.tool_call_id = call.name, call.id


# -- fields ----------------------------------------------------------------------------


def task_of(fields: Mapping[str, Any]) -> str | int | None:
    """The dataset's index, unless verl made it up: without one it gives 0 to every row."""
    index = fields.get("index")
    info = fields.get("extra_info")
    made_up = isinstance(info, Mapping) and "index" not in info
    if index is not None and not made_up:
        return index if isinstance(index, str) else _whole(index)
    text = "\n".join(f"{m.role}: {m.content}" for m in _chat_messages(fields))
    return prompt_task(text) if text else None


def _sampling(job: Job) -> dict[str, Any]:
    sampling = {k: v for k, v in job.sampling.items() if k != "logprobs" and v is not None}
    if job.logprobs_mode:
        word = "processed" if "processed" in job.logprobs_mode else "raw"
        sampling["logprobs"] = word
    return sampling


def _dataset_meta(fields: Mapping[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    info = _mapping(fields.get("extra_info"))
    if info:
        meta["extra_info"] = dict(info)
    style = _mapping(fields.get("reward_model")).get("style")
    if style is not None:
        meta["reward_style"] = style
    if fields.get("ability") is not None:
        meta["ability"] = fields["ability"]
    return meta


def _plain_metrics(metrics: Any) -> dict[str, Any]:
    found = dict(metrics) if isinstance(metrics, Mapping) else dict(vars(metrics))
    # verl's -1 says that the engine does not report it.
    return {k: v for k, v in found.items() if not (k == "num_preempted" and v == -1)}


def _version(extra: Mapping[str, Any]) -> int | None:
    for name in ("min_global_steps", "global_steps", "max_global_steps"):
        if extra.get(name) is not None:
            return _whole(extra[name])
    return None


def _chat(fields: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    raw = fields.get("raw_prompt")
    if raw is None or isinstance(raw, str):
        return None
    return [m for m in raw if isinstance(m, Mapping)]


def _chat_messages(fields: Mapping[str, Any]) -> list[Message]:
    return [from_chat(m) for m in _chat(fields) or ()]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, bool)) or (
        hasattr(value, "item") and getattr(value, "ndim", 1) == 0
    )


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
