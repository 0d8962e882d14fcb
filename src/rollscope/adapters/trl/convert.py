"""One generation batch of TRL as rollouts. Pure: it looks at what the two methods saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Message, Rollout, prompt_task
from ...model.chat import from_chat
from .._arrays import batch_on_host, number, on_host, same_length
from .._messages import after_prompt, split
from .files import prompt_text, said

TASK_COLUMNS = ("task_id", "id", "uid", "index", "idx")
"""Columns of the dataset that name a task. The first that is there is used."""
REFERENCE_COLUMNS = ("solution", "answer", "ground_truth", "reference", "target", "label")
"""Columns of the dataset that hold the ground truth. The first that is there is used."""

TENSORS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "advantages",
    "sampling_per_token_logps",
    "old_per_token_logps",
    "ref_per_token_logps",
)
_STREAMS = {
    "sampling_per_token_logps": "logprob",
    "old_per_token_logps": "train_logprob",
    "ref_per_token_logps": "ref_logprob",
}


def convert(
    inputs: Sequence[Mapping[str, Any]],
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    output: Mapping[str, Any] | None = None,
    *,
    rewards: Any = None,
    reward_names: Sequence[str] = (),
    reward_weights: Sequence[float] | None = None,
    extra: Mapping[str, Sequence[Any]] | None = None,
    num_generations: int | None = None,
    first: int = 0,
    total: int | None = None,
    step: int | None = None,
    split_name: str = "train",
    dataset: str | None = None,
    batch: int = 0,
    start: float | None = None,
    end: float | None = None,
    policy_version: int | None = None,
    tokenizer: Any = None,
    ends: Sequence[int | None] = (),
    sampling: Mapping[str, Any] | None = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """One process's rows of a generation batch as rollouts.

    The first four are what `_calculate_rewards` is given, `output` is what
    `_generate_and_score_completions` returns. `rewards` has a row for each of the `total` rows of
    all processes; `first` is this process's first. `ends` are the ids that end a completion; any
    other completion is truncated. `start` and `end` are those of the batch.
    """
    problems = problems if problems is not None else []
    n = len(inputs)
    total = n if total is None else total
    host = batch_on_host(output or {}, TENSORS)
    rows = _own_rows(on_host(rewards), n, first, total, problems)
    groups = _groups(inputs, num_generations, first, total, problems)
    advantages = same_length("advantages", host.get("advantages"), n, problems)
    columns = {
        name: values
        for name, given in (extra or {}).items()
        if (values := same_length(f"log_extra {name}", given, n, problems)) is not None
    }
    rollouts = []
    for i, row in enumerate(inputs):
        place = f"{split_name}/{step}/{batch}"
        place = place if dataset is None else f"{dataset}/{place}"
        ids = list(completion_ids[i])
        parts = _parts(rows[i], reward_names) if rows is not None else {}
        known = {
            k: v for k, v in row.items() if k not in ("prompt", "completion", "image", "images")
        }
        task = next((known.pop(c) for c in TASK_COLUMNS if known.get(c) is not None), None)
        reference = next((known.pop(c) for c in REFERENCE_COLUMNS if c in known), None)
        known |= {name: values[i] for name, values in columns.items()}
        rollout = Rollout(
            key=f"{place}/{first + i}",
            step=step,
            split=split_name,
            dataset=dataset,
            task=task if task is not None else prompt_task(prompt_text(row.get("prompt"))),
            policy_version=policy_version,
            messages=_messages(i, prompts[i], completions[i], ids, host, tokenizer, problems),
            rewards=parts,
            reward=_total(parts, reward_names, reward_weights),
            fate="scored" if rows is not None else "generated",
            start=start,
            end=end,
            sampling=dict(sampling or {}),
            reference=reference,
            meta=known,
        )
        if groups is None:
            rollout.meta["unmatched"] = "prompts and num_generations do not make whole groups"
        else:
            rollout.group, rollout.index = f"{place}/{groups[i][0]}", groups[i][1]
        if ends:
            rollout.truncated = not ids or ids[-1] not in ends
        if advantages is not None:
            rollout.advantage = number(advantages[i])
        if _all_masked(i, host, len(ids)):
            rollout.fate, rollout.fate_reason = "masked", "truncated (mask_truncated_completions)"
        rollouts.append(rollout)
    return rollouts


def _own_rows(rewards: Any, n: int, first: int, total: int, problems: list[str]) -> Any:
    """This process's rows of the rewards, which TRL gathers from all processes."""
    rewards = same_length("rewards", rewards, total, problems)
    return None if rewards is None else rewards[first : first + n]


def _groups(
    inputs: Sequence[Mapping[str, Any]],
    size: int | None,
    first: int,
    total: int,
    problems: list[str],
) -> list[tuple[int, int]] | None:
    """(group, place in it) of each row, or None.

    TRL has no id for a group: its own advantages take `num_generations` rows in a row, over
    all processes. That is used only if the rows divide exactly and share their prompt.
    """
    if not size or total % size:
        problems.append(f"groups: {total} rows are not groups of {size}; recorded as unmatched")
        return None
    places = [divmod(first + i, size) for i in range(len(inputs))]
    for i in range(1, len(inputs)):
        same = inputs[i].get("prompt") == inputs[i - 1].get("prompt")
        if places[i][0] == places[i - 1][0] and not same:
            problems.append(f"groups: rows {i - 1} and {i} have different prompts; unmatched")
            return None
    return places


def _parts(row: Sequence[float], names: Sequence[str]) -> dict[str, float]:
    """The reward of each function by name. TRL's NaN says that a function gave none."""
    if len(row) != len(names):
        return {}
    return {
        name: float(value) for name, value in zip(names, row, strict=True) if not math.isnan(value)
    }


def _total(
    parts: Mapping[str, float], names: Sequence[str], weights: Sequence[float] | None
) -> float | None:
    """The weighted sum, as TRL makes it: without the functions that gave none."""
    if not parts:
        return None
    by_name = dict(zip(names, weights, strict=True)) if weights is not None else {}
    return sum(value * float(by_name.get(name, 1.0)) for name, value in parts.items())


def _all_masked(i: int, host: Mapping[str, Any], length: int) -> bool:
    """Did `mask_truncated_completions` take this row out of the loss?"""
    mask = host.get("completion_mask")
    return mask is not None and length > 0 and not any(mask[i])


def _messages(
    i: int,
    prompt: Any,
    completion: Any,
    ids: list[int],
    host: Mapping[str, Any],
    tokenizer: Any,
    problems: list[str],
) -> list[Message]:
    chat = prompt if isinstance(prompt, list) else None
    if "prompt_ids" not in host or "prompt_mask" not in host:
        return said(prompt, completion)
    given = [
        int(t) for t, m in zip(host["prompt_ids"][i], host["prompt_mask"][i], strict=True) if m
    ]
    p, n = len(given), len(ids)
    wrote = [1] * n
    if "tool_mask" in host:
        wrote = [int(v) for v in host["tool_mask"][i][:n]]
    streams: dict[str, list[Any] | None] = {}
    if "completion_mask" in host:
        learned = [int(v) for v in host["completion_mask"][i][:n]]
        streams["mask"] = [0] * p + [a * b for a, b in zip(learned, wrote, strict=True)]
    for name, stream in _STREAMS.items():
        if name in host:
            values = [
                float(v) if w else None  # TRL puts 0.0 where a tool wrote
                for v, w in zip(host[name][i][:n], wrote, strict=True)
            ]
            streams[stream] = after_prompt(p, values)
    messages = split(
        given + ids,
        tokenizer=tokenizer,
        sampled=[0] * p + wrote,
        streams=streams,
        chat=chat,
        problems=problems,
    )
    return _with_tool_calls(messages, completion)


def _with_tool_calls(messages: list[Message], completion: Any) -> list[Message]:
    """Tool calls and tool names that TRL parsed, where it tells the same conversation."""
    if not isinstance(completion, list):
        return messages
    begin = next((i for i, m in enumerate(messages) if m.sampled), len(messages))
    if [m.role for m in messages[begin:]] != [m.get("role") for m in completion]:
        return messages
    for message, parsed in zip(messages[begin:], completion, strict=True):
        known = from_chat(parsed)
        message.name, message.tool_calls = known.name, known.tool_calls
        message.tool_call_id = known.tool_call_id
    return messages
