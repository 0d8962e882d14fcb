"""open-instruct's `GenerationResult` and `Batch` to rollouts. Pure.

A `GenerationResult` from the engine is one group: one prompt, several samples. Merged for
training, it holds the rows of many groups, and only the `Batch` beside it says whose they are.
All of it are parallel lists, some of which are shorter in supported modes (`request_info` is
not filtered when truncated rows are): a list that does not fit is missing, never shifted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Error, Rollout, Span, prompt_task
from .._arrays import number, same_length
from .._rows import TrainingRow, join

_INFO = (
    "num_calls",
    "timeouts",
    "tool_errors",
    "tool_outputs",
    "tool_runtimes",
    "tool_calleds",
    "tool_call_stats",
    "rollout_states",
)


def convert(
    batch: Any,
    result: Any,
    advantages: Any = None,
    *,
    samples: int | None = None,
    tokenizer: Any = None,
    step: int | None = None,
    split: str = "train",
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The rows of a merged batch (`make_batch_from_groups`), by dataset index.

    `samples` is the number of samples per prompt. A row's place in its group is known only if
    all of its siblings are there; where rows were taken out, it is not guessed.
    """
    problems = problems if problems is not None else []
    n = len(result.responses)
    rows = _rows(result, n, problems)
    for name in (
        "queries",
        "ground_truths",
        "datasets",
        "raw_queries",
        "decoded_responses",
        "indices",
        "scores",
        "active_tools",
        "model_steps",
    ):
        rows[name] = same_length(f"batch.{name}", getattr(batch, name, None), n, problems)
    if n and not rows["model_steps"]:
        rows["model_steps"] = None
    rows["advantages"] = same_length("advantages", advantages, n, problems)
    counts = Counter(rows["indices"] or ())
    seen: Counter[Any] = Counter()
    found = []
    for i in range(n):
        rollout = _rollout(rows, i, _at(rows["queries"], i), tokenizer, problems)
        rollout.reward = number(_at(rows["scores"], i))
        rollout.advantage = number(_at(rows["advantages"], i))
        rollout.policy_version = _at(rows["model_steps"], i)
        rollout.trained_step = None if step is None else step + 1
        rollout.fate = "scored"
        index = _at(rows["indices"], i)
        place = seen[index] if index is not None and counts[index] == samples else None
        seen[index] += 1
        _name(rollout, split, index, None, place)
        _dataset(
            rollout,
            _at(rows["datasets"], i),
            _at(rows["ground_truths"], i),
            _at(rows["raw_queries"], i),
            _at(rows["active_tools"], i),
        )
        if rows["decoded_responses"] is not None and tokenizer is None:
            _last_said(rollout, rows["decoded_responses"][i])
        if index is None:
            rollout.meta["unmatched"] = "no dataset index"
        found.append(rollout)
    return found


def convert_group(
    result: Any,
    *,
    query: Sequence[int] = (),
    ground_truth: Any = None,
    dataset: Any = None,
    raw_query: str | None = None,
    active_tools: Any = None,
    tokenizer: Any = None,
    split: str = "train",
    step: int | None = None,
    end: float | None = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The samples of one prompt, as the engine sent them.

    `step` is the step of an evaluation; for training, the version of the weights tells.
    """
    problems = problems if problems is not None else []
    n = len(result.responses)
    rows = _rows(result, n, problems)
    scores = same_length("reward_scores", result.reward_scores, n, problems)
    seconds = number(getattr(result.token_statistics, "generation_time", None))
    found = []
    for j in range(n):
        rollout = _rollout(rows, j, query, tokenizer, problems)
        rollout.reward = number(_at(scores, j))
        rollout.fate = "generated" if rollout.reward is None else "scored"
        rollout.policy_version = result.model_step
        # Weights are numbered by the steps they have been trained for; steps begin at 1.
        if step is None and result.model_step is not None:
            rollout.step = result.model_step + 1
        else:
            rollout.step = step
        if end is not None and seconds is not None:
            rollout.start, rollout.end = end - seconds, end
        _name(rollout, split, result.index, result.prompt_id, j)
        _dataset(rollout, dataset, ground_truth, raw_query, active_tools)
        found.append(rollout)
    return found


def _rows(result: Any, n: int, problems: list[str]) -> dict[str, Any]:
    """The parallel lists of a result, each with one entry per response, or None."""
    rows = {
        name: same_length(name, getattr(result, name, None), n, problems)
        for name in ("responses", "finish_reasons", "masks")
    }
    logprobs = getattr(result, "logprobs", None)
    rows["logprobs"] = same_length("logprobs", logprobs, n, problems) if logprobs else None
    info = getattr(result, "request_info", None)
    for name in _INFO:
        values = getattr(info, name, None)
        rows[name] = same_length(f"request_info.{name}", values, n, problems) if values else None
    return rows


def _rollout(
    rows: Mapping[str, Any],
    i: int,
    query: Sequence[int] | None,
    tokenizer: Any,
    problems: list[str],
) -> Rollout:
    query, response = list(query or ()), list(rows["responses"][i])
    mask = _at(rows["masks"], i)
    stats = _at(rows["tool_call_stats"], i) or []
    used_tools = bool(_at(rows["tool_calleds"], i)) or bool(stats)
    wrote = mask if mask is not None and any(mask) else None
    # With `mask_tool_use` off the tools' words are masked in like the policy's.
    is_mixed = used_tools and mask is not None and all(mask)
    joined = join(
        [
            TrainingRow(
                query + response,
                len(query),
                None if is_mixed else wrote,
                {"logprob": _at(rows["logprobs"], i), "mask": mask},
            )
        ],
        tokenizer=tokenizer,
        problems=problems,
    )
    rollout = Rollout(messages=joined.messages, stop_reason=_at(rows["finish_reasons"], i))
    if rollout.stop_reason is not None:
        rollout.truncated = rollout.stop_reason != "stop"
        joined.messages[joined.last[0]].stop_reason = rollout.stop_reason
    names = {stat.tool_name for stat in stats}
    at = 0
    for message in joined.messages:
        is_after = at >= len(query)
        at += len(message.tokens or ())
        if is_mixed and at > len(query):
            message.sampled = None
        elif is_after and used_tools and not message.sampled and message.role == "unknown":
            message.role = "tool"
            message.name = next(iter(names)) if len(names) == 1 else None
    if is_mixed:
        rollout.meta["tool_spans"] = "not marked by the mask (mask_tool_use is off)"
    _tools(rollout, rows, i, stats)
    return rollout


def _tools(rollout: Rollout, rows: Mapping[str, Any], i: int, stats: Sequence[Any]) -> None:
    """Tool calls as spans; open-instruct keeps neither their arguments nor their times."""
    for stat in stats:
        failed = Error(kind="tool", type=stat.tool_name) if not stat.success else None
        rollout.spans.append(
            Span(name=stat.tool_name, error=failed, meta={"seconds": stat.runtime})
        )
    info = {name: _at(rows[name], i) for name in _INFO if name != "tool_call_stats"}
    info = {name: v for name, v in info.items() if v not in (None, "", {}, False, 0, 0.0)}
    if info:
        rollout.meta["request_info"] = {
            k: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v  # type: ignore[arg-type]
            for k, v in info.items()
        }
    if text := info.get("tool_errors"):
        rollout.error = Error(kind="tool", text=str(text))


def _name(
    rollout: Rollout, split: str, index: int | None, prompt_id: str | None, sample: int | None
) -> None:
    rollout.split = split
    rollout.index = sample
    if index is not None:
        rollout.task = str(index) if split == "train" else f"{split}:{index}"
    if prompt_id is not None:
        rollout.group = f"{split}/{prompt_id}"
        rollout.key = f"open-instruct/{rollout.group}/{sample}"
    elif index is not None and rollout.trained_step is not None:
        rollout.group = f"{split}/{rollout.trained_step}/{index}"


def _dataset(
    rollout: Rollout, dataset: Any, ground_truth: Any, raw_query: str | None, tools: Any
) -> None:
    if dataset is not None:
        rollout.dataset = dataset if isinstance(dataset, str) else "+".join(map(str, dataset))
    rollout.reference = ground_truth
    if raw_query is not None:
        rollout.meta["raw_query"] = raw_query
        if rollout.task is None:
            rollout.task = prompt_task(raw_query)
    if tools is not None:
        rollout.meta["active_tools"] = list(tools)


def _last_said(rollout: Rollout, text: str) -> None:
    """The text that open-instruct decoded itself, where it is one message's."""
    said = [message for message in rollout.messages if message.sampled]
    if len(said) == 1:
        said[0].content = text


def _at(values: Any, i: int) -> Any:
    return None if values is None else values[i]
