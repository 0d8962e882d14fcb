"""What an AReaL workflow gives back, to rollouts. Pure.

A workflow's `arun_episode` gives one of three things:

- a dict of tensors with one row per sample (`RLVRWorkflow`, `MultiTurnWorkflow`, your own);
- a dict of interactions, one per call of the model (agents): one rollout, a tree of messages;
- None: the episode was rejected. What the model said is then known only from its calls.

Padding is zero everywhere, also where zero is a real value (`versions`, `turn_ids`): rows are
cut by `attention_mask` first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...model import Error, Message, Rollout, Span, prompt_task
from ...model.chat import from_chat
from .._arrays import listed, number, same_length
from .._decode import decode
from .._messages import split
from .._rows import TrainingRow, join
from .interactions import Episode, chat_tree, from_interactions, take_names
from .rows import digest, first_version, rows_of, versions, written

_TASK_KEYS = ("query_id", "qid", "uid", "id", "index")
_REFERENCE_KEYS = ("answer", "ground_truth", "solution", "label")


class EngineCall(NamedTuple):
    """One `engine.agenerate`: what was asked, and what came back (None: it raised `error`)."""

    request: Any
    response: Any
    start: float
    end: float
    error: BaseException | None = None


def convert(
    result: Mapping[str, Any] | None,
    *,
    data: Mapping[str, Any] | None = None,
    calls: Sequence[EngineCall] = (),
    chats: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    tokenizer: Any = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The rollouts of one episode.

    `data` is the dataset's row, `calls` what the engine was asked meanwhile, `chats` the whole
    conversation of a completion by its id, where somebody saw it (agents).
    """
    found = episodes(
        result, data=data, calls=calls, chats=chats, tokenizer=tokenizer, problems=problems
    )
    return [episode.rollout for episode in found]


def episodes(
    result: Mapping[str, Any] | None,
    *,
    data: Mapping[str, Any] | None = None,
    calls: Sequence[EngineCall] = (),
    chats: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    tokenizer: Any = None,
    problems: list[str] | None = None,
) -> list[Episode]:
    """`convert`, with the training rows of each rollout."""
    problems = problems if problems is not None else []
    data = data or {}
    chat = data.get("messages") if isinstance(data.get("messages"), (list, tuple)) else None
    if result is None:
        found = [_from_calls(calls, chats or {}, tokenizer, chat, problems)]
        found[0].rollout.fate = "rejected"
        found[0].rollout.fate_reason = "the workflow returned None"
    elif "input_ids" in result:
        found = _from_tensors(result, tokenizer, chat, problems)
    else:
        found = [from_interactions(list(result.values()), chats or {}, tokenizer, problems)]
    _add_calls([episode.rollout for episode in found], calls)
    for episode in found:
        _add_data(episode.rollout, data, tokenizer)
        episode.rollout.sampling = _sampling(calls)
    return found


# -- tensors ---------------------------------------------------------------------------


def _from_tensors(
    batch: Mapping[str, Any],
    tokenizer: Any,
    chat: Sequence[Mapping[str, Any]] | None,
    problems: list[str],
) -> list[Episode]:
    rows = rows_of(batch)
    whole = same_length("messages", batch.get("messages"), len(rows), problems)
    found = []
    for i, row in enumerate(rows):
        ids = row["input_ids"]
        mask = listed(row["loss_mask"]) if "loss_mask" in row else None
        wrote = mask if mask is not None and any(mask) else None
        turns = row.get("turn_ids")
        messages = split(
            ids,
            tokenizer=tokenizer,
            sampled=wrote,
            streams={
                "logprob": written(wrote, row.get("logprobs")),
                "version": versions(row.get("versions")),
                "mask": mask,
            },
            chat=chat,
            turns=None if turns is None else turns.tolist(),
            problems=problems,
        )
        if whole is not None:
            take_names(messages, _as_chat(whole[i], problems))
        rollout = Rollout(messages=messages, fate="scored", reward=number(row.get("rewards")))
        if "original_rewards" in row:
            if rollout.reward is not None:
                rollout.rewards["normalised"] = rollout.reward
            rollout.reward = number(row["original_rewards"])
        rollout.policy_version = first_version(messages)
        name = digest(ids, row.get("versions"), row.get("logprobs"))
        found.append(Episode(rollout, [(name, (range(len(ids)),))], len(ids)))
    return found


def _as_chat(value: Any, problems: list[str]) -> list[Mapping[str, Any]]:
    """A conversation that a workflow carries along, as JSON or as it is."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        problems.append("messages: not JSON; left out")
        return []
    return [m for m in value if isinstance(m, Mapping)] if isinstance(value, (list, tuple)) else []


# -- calls of the model ----------------------------------------------------------------


def _from_calls(
    calls: Sequence[EngineCall],
    chats: Mapping[str, Sequence[Mapping[str, Any]]],
    tokenizer: Any,
    chat: Sequence[Mapping[str, Any]] | None,
    problems: list[str],
) -> Episode:
    """An episode of which nothing but its calls is known."""
    answered = [call.response for call in calls if call.response is not None]
    if not answered and chats:
        messages, ends = chat_tree(list(chats.values()))
        for end in ends:
            messages[end].sampled = True
        return Episode(Rollout(messages=messages), [], 0)
    if not answered:
        asked = [from_chat(m) for m in chat or ()]
        return Episode(Rollout(messages=asked), [], 0)
    joined = join(
        [_row(response) for response in answered],
        tokenizer=tokenizer or answered[0].tokenizer,
        chat=chat,
        problems=problems,
    )
    rollout = Rollout(messages=joined.messages, policy_version=first_version(joined.messages))
    return Episode(rollout, [], joined.total)


def _row(response: Any) -> TrainingRow:
    """A `ModelResponse`, as a training row."""
    prompt, made = list(response.input_tokens), list(response.output_tokens)
    return TrainingRow(
        prompt + made,
        len(prompt),
        [1] * len(made),
        {
            "logprob": response.output_logprobs or None,
            "version": response.output_versions or None,
        },
    )


# -- what else is known ----------------------------------------------------------------


def _add_calls(rollouts: Sequence[Rollout], calls: Sequence[EngineCall]) -> None:
    """Each call as a span; its stop reason and times at the message it made, found by tokens."""
    if not calls:
        return
    free = [
        (rollout, n, _written(message))
        for rollout in rollouts
        for n, message in enumerate(rollout.messages)
        if message.sampled
    ]
    for call in calls:
        made = list(call.response.output_tokens) if call.response is not None else None
        owner = next((place for place in free if made is not None and place[2] == made), None)
        span = Span(name="generate", start=call.start, end=call.end)
        if call.error is not None:
            span.error = Error(
                kind="infrastructure",
                type=type(call.error).__name__,
                text=str(call.error) or None,
            )
        if call.response is not None:
            span.outputs = {"stop_reason": call.response.stop_reason, "tokens": len(made or ())}
        if owner is None:
            for rollout in rollouts[:1]:
                rollout.spans.append(span)
            continue
        free.remove(owner)
        rollout, n, _ = owner
        span.message = n
        rollout.spans.append(span)
        message = rollout.messages[n]
        message.stop_reason = call.response.stop_reason
        message.start, message.end = call.start, call.end
        rollout.stop_reason = call.response.stop_reason
        rollout.truncated = call.response.stop_reason == "length"


def _written(message: Message) -> list[int]:
    """The tokens of a message that the policy drew: those with a version, or in the mask."""
    tokens = message.tokens
    if tokens is None:
        return []
    if tokens.version is not None:
        return [i for i, v in zip(tokens.ids, tokens.version, strict=True) if v is not None]
    marks = tokens.mask if tokens.mask is not None else [1] * len(tokens.ids)
    return [i for i, mark in zip(tokens.ids, marks, strict=True) if mark]


def _add_data(rollout: Rollout, data: Mapping[str, Any], tokenizer: Any) -> None:
    """Task and reference, as the dataset's row tells them."""
    named = next((k for k in _TASK_KEYS if isinstance(data.get(k), (str, int))), None)
    if named is not None:
        rollout.task = data[named]
    elif data.get("messages") is not None:
        rollout.task = prompt_task(json.dumps(data["messages"], sort_keys=True, default=str))
    elif data:
        rollout.task = prompt_task(json.dumps(data, sort_keys=True, default=str))
    elif rollout.messages and rollout.messages[0].tokens is not None and tokenizer is not None:
        rollout.task = prompt_task(decode(tokenizer, rollout.messages[0].tokens.ids).text)
    known = next((k for k in _REFERENCE_KEYS if k in data), None)
    if known is not None:
        rollout.reference = data[known]
    rest = {
        k: v
        for k, v in data.items()
        if k not in (named, known, "messages")
        and isinstance(v, (str, int, float, bool, list, dict, type(None)))
    }
    if rest:
        rollout.meta["data"] = rest


def _sampling(calls: Sequence[EngineCall]) -> dict[str, Any]:
    config = getattr(calls[0].request, "gconfig", None) if calls else None
    names = ("temperature", "top_p", "top_k", "max_new_tokens", "greedy")
    found = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}
