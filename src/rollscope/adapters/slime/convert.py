"""slime's `Sample`s to `Rollout`. Pure: nothing is imported from slime, no I/O."""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...model import Message, Rollout, Span, Tokens, prompt_task
from ...model.chat import from_chat
from .._arrays import where
from .._messages import after_prompt, split

FIELDS: dict[str, Any] = {
    "group_index": None, "index": None, "rollout_id": None, "prompt": "", "tokens": [],
    "response": "", "response_length": 0, "label": None, "reward": None, "loss_mask": None,
    "weight_versions": [], "rollout_log_probs": None, "teacher_log_probs": None,
    "remove_sample": False, "status": None,
    "metadata": {}, "trace": None,
}  # fmt: skip
"""What is read of a `Sample`, and what stands for a field that is not there."""


def convert(
    samples: Iterable[Any],
    *,
    step: int | None,
    split_name: str = "train",
    dataset: str | None = None,
    group_size: int | None = None,
    reward_key: str | None = None,
    tokenizer: Any = None,
    masks_off_policy: bool = False,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The rollouts of one batch of samples, in any nesting.

    Samples that share a `rollout_id` are one rollout: slime cut it for training. `group_size`
    is `n_samples_per_prompt`; `masks_off_policy` says that slime also masks tokens which the
    policy did write (`--mask-offpolicy-in-partial-rollout`).
    """
    problems = problems if problems is not None else []
    rollouts: list[Rollout] = []
    for members in _executions(flat(samples)):
        rollout = _rollout(members[-1], step, split_name, dataset, reward_key)
        for member in members:
            messages = _messages(member, tokenizer, masks_off_policy, problems)
            if rollout.messages and messages:
                messages[0].parent = -1
            rollout.messages += messages
            rollout.spans += _spans(member)
        rollouts.append(rollout)
    _place(rollouts, group_size)
    return rollouts


def flat(samples: Any) -> Iterator[Any]:
    """The samples of nested lists, in order."""
    for item in samples:
        if isinstance(item, (list, tuple)):
            yield from flat(item)
        else:
            yield item


def _executions(samples: Iterable[Any]) -> list[list[Any]]:
    """Samples by the execution that made them; one without an id is one of its own."""
    found: dict[Any, list[Any]] = {}
    for n, sample in enumerate(samples):
        name = ("rollout", sample.rollout_id) if sample.rollout_id is not None else ("sample", n)
        found.setdefault(name, []).append(sample)
    return list(found.values())


def _rollout(
    sample: Any, step: int | None, split_name: str, dataset: str | None, reward_key: str | None
) -> Rollout:
    metadata = dict(sample.metadata or {})
    number = number_of(sample)
    began = metadata.get("start_rollout_id")
    status = getattr(sample.status, "value", sample.status)
    reward, parts = _rewards(sample.reward, reward_key)
    rollout = Rollout(
        key=None if number is None else _key(split_name, dataset, step, number),
        step=began if isinstance(began, int) else step,
        trained_step=step if split_name == "train" else None,
        split=split_name,
        dataset=dataset,
        task=_task(sample, metadata),
        group=None if sample.group_index is None else f"{split_name}/{sample.group_index}",
        index=sample.index,  # the number in the whole run, until `_place`
        reward=reward,
        rewards=parts,
        stop_reason=status,
        truncated=True if status == "truncated" else False if status == "completed" else None,
        reference=sample.label,
        policy_version=_version(sample.weight_versions),
        meta={"slime": metadata} if metadata else {},
    )
    if len(set(sample.weight_versions or ())) > 1:
        rollout.meta["weight_versions"] = list(sample.weight_versions)
    rollout.fate, rollout.fate_reason = _fate(sample, status, reward)
    if rollout.fate not in ("generated", "scored"):
        rollout.trained_step = None
    return rollout


def number_of(sample: Any) -> int | None:
    """slime's number of the execution, which samples that were cut from one share."""
    number: int | None = sample.index if sample.rollout_id is None else sample.rollout_id
    return number


def _key(split_name: str, dataset: str | None, step: int | None, number: int) -> str:
    """Training numbers count through the whole run, and a sample that is continued over several
    steps keeps its own; in evaluation they begin anew each time."""
    if split_name == "train":
        return f"train/{number}"
    return f"{split_name}/{dataset or ''}/{step}/{number}"


def _fate(sample: Any, status: Any, reward: float | None) -> tuple[str, str | None]:
    if status == "failed":
        return "failed", "the generation failed"
    if status in ("aborted", "pending"):
        return "dropped", f"{status}: not finished when the batch was full"
    if sample.remove_sample:
        return "masked", "remove_sample"
    return ("generated" if reward is None else "scored"), None


def _rewards(reward: Any, key: str | None) -> tuple[float | None, dict[str, float]]:
    if isinstance(reward, Mapping):
        parts = {str(k): float(v) for k, v in reward.items() if isinstance(v, numbers.Real)}
        return parts.get(key) if key else None, parts
    return (float(reward) if isinstance(reward, numbers.Real) else None), {}


def _version(versions: Sequence[Any] | None) -> int | None:
    """The first weights that wrote in it, where slime's engine numbers them."""
    first = str(versions[0]) if versions else ""
    return int(first) if first.isdecimal() else None


def _task(sample: Any, metadata: Mapping[str, Any]) -> str | int | None:
    for name in ("task_id", "instance_id", "index", "id"):
        if isinstance(metadata.get(name), (str, int)):
            return metadata[name]  # type: ignore[no-any-return]
    prompt = sample.prompt
    text = prompt if isinstance(prompt, str) else "\n".join(str(m) for m in prompt)
    return prompt_task(text) if text else None


def _place(rollouts: list[Rollout], group_size: int | None) -> None:
    """Places in groups, where the numbers prove them: n in a row, beginning at a multiple of n."""
    n = group_size or 0
    numbers_of = [rollout.index for rollout in rollouts]
    sizes = Counter(rollout.group for rollout in rollouts)
    whole = n > 0 and None not in numbers_of and len(rollouts) % n == 0
    for rollout, number in zip(rollouts, numbers_of, strict=True):
        rollout.index = None
        if n <= 0 or number is None:
            continue
        if rollout.group is None and whole:
            rollout.group = f"{rollout.split}/{rollout.dataset or ''}/{rollout.step}/{number // n}"
            rollout.index = number % n
        elif rollout.group is not None and rollout.group.endswith(f"/{number // n}"):
            rollout.index = number % n
        elif rollout.group is not None and sizes[rollout.group] > n:
            rollout.meta["unmatched"] = "more samples in the group than n_samples_per_prompt"


# -- messages --------------------------------------------------------------------------


def _messages(
    sample: Any, tokenizer: Any, masks_off_policy: bool, problems: list[str]
) -> list[Message]:
    tokens, length = list(sample.tokens or ()), int(sample.response_length or 0)
    chat = None if isinstance(sample.prompt, str) else list(sample.prompt or ())
    if not tokens or tokenizer is None or length > len(tokens):
        if length > len(tokens):
            problems.append(f"response_length {length} is more than {len(tokens)} tokens; left out")
            tokens = []
        return _texts(sample, chat, tokens, length)
    prompt = len(tokens) - length
    mask = _fitting("loss_mask", sample.loss_mask, length, problems)
    mask = [1] * length if mask is None else mask
    logprobs = _fitting("rollout_log_probs", sample.rollout_log_probs, length, problems)
    wrote = [bool(m) for m in mask]
    if masks_off_policy and logprobs is not None:
        # slime writes exactly zero for tokens of tools and nothing else for the policy's own.
        wrote = [w or p != 0.0 for w, p in zip(wrote, logprobs, strict=True)]
    if logprobs is not None:
        logprobs = where(wrote, logprobs)
    version = _version(sample.weight_versions)
    same = version is not None and len(set(sample.weight_versions)) == 1
    return split(
        tokens,
        tokenizer=tokenizer,
        sampled=[False] * prompt + wrote,
        streams={
            "mask": [0] * prompt + [int(m) for m in mask],
            "logprob": after_prompt(prompt, logprobs),
            "teacher_logprob": after_prompt(prompt, _teacher(sample, length, problems)),
            "version": after_prompt(prompt, [version if w else None for w in wrote])
            if same
            else None,
        },
        chat=chat,
        problems=problems,
    )


def _teacher(sample: Any, length: int, problems: list[str]) -> list[Any] | None:
    """The teacher's log probabilities of the response, in on-policy distillation.

    slime puts them into `teacher_log_probs` only after the batch was logged. Until then they are
    in the reward: `slime/rollout/on_policy_distillation.py` takes the teacher's answer as one.
    """
    values, answer = sample.teacher_log_probs, sample.reward
    if values is None and isinstance(answer, Mapping):
        given = (answer.get("meta_info") or {}).get("input_token_logprobs") or ()
        values = [item[0] for item in given[1:]][-length:] if length else None
    values = values.tolist() if hasattr(values, "tolist") else values
    return _fitting("teacher_log_probs", values, length, problems)


def _texts(sample: Any, chat: list[Any] | None, tokens: list[int], length: int) -> list[Message]:
    """Without a tokenizer: slime's own texts, the tokens beside them."""
    messages = [from_chat(m) for m in chat] if chat is not None else []
    if chat is None and sample.prompt:
        messages.append(Message(role="unknown", content=sample.prompt, sampled=False))
        if tokens:
            messages[-1].tokens = Tokens(tokens[: len(tokens) - length])
    if sample.response or length:
        answer = Message(role="assistant", content=sample.response)
        if tokens and length:
            answer.tokens = Tokens(tokens[len(tokens) - length :], mask=sample.loss_mask)
        messages.append(answer)
    return messages


def _fitting(name: str, values: Any, n: int, problems: list[str]) -> list[Any] | None:
    if values is None or not len(values):
        return None
    if len(values) != n:
        problems.append(f"{name}: {len(values)} values for {n} response tokens; left out")
        return None
    return list(values)


def _spans(sample: Any) -> list[Span]:
    """slime's own trace of a sample, if it keeps one."""
    trace = getattr(sample, "trace", None)
    events = trace.get("events", ()) if isinstance(trace, Mapping) else ()
    spans: dict[Any, Span] = {}
    for event in events:
        id = event.get("span_id")
        if event.get("type") == "span_start" and id is not None:
            spans[id] = Span(
                name=str(event.get("name")),
                id=str(id),
                parent=event.get("parent_span_id"),
                start=event.get("ts"),
                inputs=event.get("attrs"),
            )
        elif event.get("type") == "span_end" and id in spans:
            spans[id].end, spans[id].outputs = event.get("ts"), event.get("attrs")
    return list(spans.values())
