"""One generation batch of TRL as rollouts. Pure: it looks at what the two methods saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from ...model import Message, Rollout, prompt_task
from ...model.chat import from_chat
from .._arrays import batch_on_host, listed, number, on_host, same_length, where
from .._messages import after_prompt, split
from .._repeats import Repeats
from .files import prompt_text, said
from .rows import ROW_TENSORS, Row, match, row, rows_of

TASK_COLUMNS = ("task_id", "id", "uid", "index", "idx")
"""Columns of the dataset that name a task. The first that is there is used."""
REFERENCE_COLUMNS = ("solution", "answer", "ground_truth", "reference", "target", "label")
"""Columns of the dataset that hold the ground truth. The first that is there is used."""

TENSORS = (
    *ROW_TENSORS,
    "sampling_per_token_logps",
    "old_per_token_logps",
    "ref_per_token_logps",
)
_SHOWN = ("prompt", "completion", "image", "images")
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
    prompt_ids: Sequence[Sequence[int]] | None = None,
    rewards: Any = None,
    reward_names: Sequence[str] = (),
    reward_weights: Sequence[float] | None = None,
    extra: Mapping[str, Sequence[Any]] | None = None,
    has_environments: bool = False,
    num_generations: int | None = None,
    first: int = 0,
    total: int | None = None,
    step: int | None = None,
    split_name: str = "train",
    dataset: str | None = None,
    training: int = 0,
    batch: int = 0,
    start: float | None = None,
    end: float | None = None,
    policy_version: int | None = None,
    tokenizer: Any = None,
    pad: int | None = None,
    ends: Sequence[int | None] = (),
    sampling: Mapping[str, Any] | None = None,
    rows: list[Row | None] | None = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """One process's rows of a generation batch as rollouts.

    The first four are what `_calculate_rewards` is given, `output` is what
    `_generate_and_score_completions` returns, and `prompt_ids` what `_generate` does. The rows of
    the output are matched by their tokens; what is not matched has no advantage and no streams.
    `rewards` has a row for each of the `total` rows of all processes; `first` is this process's
    first. `ends` are the ids that end a completion; any other completion is truncated. `start`
    and `end` are those of the batch. `training` numbers the trainings that share a run. `rows`
    gets, for each rollout, the row that it is known by in the loss.
    """
    problems = problems if problems is not None else []
    n = len(inputs)
    total = n if total is None else total
    scores = _own_scores(on_host(rewards), n, first, total, problems)
    groups = _groups(inputs, num_generations, first, total, problems)
    tokens = _tokens(completion_ids, prompt_ids, batch_on_host(output or {}, TENSORS), pad)
    if output and None in (known.place for known in tokens):
        problems.append("rows that were generated and not handed on have no advantage")
    names = apart(reward_names)
    columns = {
        name: values
        for name, given in (extra or {}).items()
        if (values := same_length(f"log_extra {name}", given, n, problems)) is not None
    }
    place = "/".join(str(part) for part in (dataset, split_name, step, batch) if part is not None)
    place = f"{training}:{place}" if training else place
    rollouts = []
    for i, given in enumerate(inputs):
        rollout = _asked(given, has_environments)
        rollout.key = f"{place}/{first + i}"
        rollout.step, rollout.split, rollout.dataset = step, split_name, dataset
        rollout.policy_version, rollout.sampling = policy_version, dict(sampling or {})
        rollout.start, rollout.end = start, end
        rollout.messages = _messages(tokens[i], prompts[i], completions[i], tokenizer, problems)
        rollout.meta |= {name: values[i] for name, values in columns.items()}
        rollout.rewards = _parts(scores[i], names) if scores is not None else {}
        rollout.reward = _total(rollout.rewards, names, reward_weights)
        rollout.advantage = number(tokens[i].values.get("advantages"))
        rollout.fate = "generated" if scores is None else "scored"
        if tokens[i].is_masked:
            rollout.fate, rollout.fate_reason = "masked", "truncated (mask_truncated_completions)"
        if ends:
            rollout.truncated = not tokens[i].wrote or tokens[i].wrote[-1] not in ends
        if groups is None:
            rollout.meta["unmatched"] = "prompts and num_generations do not make whole groups"
        else:
            rollout.group, rollout.index = f"{place}/{groups[i][0]}", groups[i][1]
        rollouts.append(rollout)
    if rows is not None:
        rows += [known.row for known in tokens]
    return rollouts


def _asked(given: Mapping[str, Any], has_environments: bool) -> Rollout:
    """What a row of the dataset says: task, reference, and the rest.

    The task is named by a column, else by the prompt. With environments the prompt may be a
    placeholder, and the whole row says what is asked.
    """
    known = {name: value for name, value in given.items() if name not in _SHOWN}
    prompt = prompt_text(given.get("prompt"))
    if has_environments:
        prompt = "\n".join([prompt, *(f"{name}: {known[name]}" for name in sorted(known))])
    task = next((known.pop(c) for c in TASK_COLUMNS if known.get(c) is not None), None)
    reference = next((known.pop(c) for c in REFERENCE_COLUMNS if c in known), None)
    return Rollout(
        task=prompt_task(prompt) if task is None else task, reference=reference, meta=known
    )


class _Tokens(NamedTuple):
    """What is known of the tokens of one rollout."""

    wrote: list[int]
    shown: list[int] | None
    row: Row | None
    """None: its prompt is not known."""
    place: int | None
    """Which row of the output it is."""
    values: Mapping[str, Any]
    """That row's entries in the output."""

    @property
    def is_masked(self) -> bool:
        """Did `mask_truncated_completions` take this row out of the loss?"""
        mask = self.values.get("completion_mask")
        return mask is not None and bool(self.wrote) and not any(mask)


def _tokens(
    completion_ids: Sequence[Sequence[int]],
    prompt_ids: Sequence[Sequence[int]] | None,
    host: Mapping[str, Any],
    pad: int | None,
) -> list[_Tokens]:
    made = rows_of(host, pad)
    host = {name: values for name, values in host.items() if len(values) == len(made)}
    prompts: Sequence[Sequence[int] | None] = prompt_ids or [None] * len(completion_ids)
    given = [row(*pair, pad) for pair in zip(prompts, completion_ids, strict=True)]
    found = []
    for i, place in enumerate(match(given, made, host.get("advantages"))):
        values = {} if place is None else {name: column[place] for name, column in host.items()}
        shown, own = prompts[i], given[i]
        if shown is None and place is not None:
            pairs = zip(values["prompt_ids"], values["prompt_mask"], strict=True)
            shown, own = [int(t) for t, m in pairs if m], made[place]
        known = None if own.prompt is None else own
        prompt = None if shown is None else list(shown)
        found.append(_Tokens(list(completion_ids[i]), prompt, known, place, values))
    return found


def _own_scores(rewards: Any, n: int, first: int, total: int, problems: list[str]) -> Any:
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


def apart(names: Sequence[str]) -> list[str]:
    """The names of the reward functions. Several may have one name, for example `reward`."""
    repeats = Repeats()
    return [repeats.unique(name) for name in names]


def _messages(
    tokens: _Tokens, prompt: Any, completion: Any, tokenizer: Any, problems: list[str]
) -> list[Message]:
    if tokens.shown is None:
        own = split(tokens.wrote, tokenizer=tokenizer, sampled=[1] * len(tokens.wrote))
        return _with_tool_calls([*said(prompt, []), *own], completion)
    values, p, n = tokens.values, len(tokens.shown), len(tokens.wrote)
    has_tools = "tool_mask" in values
    wrote = _whole(values["tool_mask"][:n]) if has_tools else [1] * n
    is_told = any(wrote) or not n  # a row that is left out of the loss says nothing there
    streams: dict[str, list[Any] | None] = {}
    if "completion_mask" in values:
        learned = _whole(values["completion_mask"][:n])
        streams["mask"] = [0] * p + (list(map(mul, learned, wrote)) if has_tools else learned)
    for name, stream in _STREAMS.items():
        if name in values and is_told:
            found = values[name][:n]  # TRL puts 0.0 where a tool wrote
            streams[stream] = after_prompt(p, where(wrote, found) if has_tools else found)
    messages = split(
        tokens.shown + tokens.wrote,
        tokenizer=tokenizer,
        sampled=[0] * p + wrote if is_told else None,
        streams=streams,
        chat=prompt if isinstance(prompt, list) else None,
        problems=problems,
    )
    if not is_told:
        _by_role(messages, p)
    return _with_tool_calls(messages, completion)


def _whole(values: Any) -> list[int]:
    if hasattr(values, "astype"):
        return listed(values.astype(int))
    return [int(value) for value in values]


def _by_role(messages: list[Message], prompt: int) -> None:
    """After the prompt, the policy wrote what stands below a header of the assistant."""
    at = 0
    for message in messages:
        at += 0 if message.tokens is None else len(message.tokens)
        if message.role != "unknown":
            message.sampled = at > prompt and message.role == "assistant"


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
