"""TRL: every generation of `GRPOTrainer` and `RLOOTrainer`, with one line.

    trainer = GRPOTrainer(...)
    rollscope.adapters.trl.attach(trainer)
    trainer.train()

TRL itself keeps the completions of the last batch before a logging step. Here two methods of
this trainer are wrapped: `_calculate_rewards` sees rows, messages, ids and the reward of each
function; `_generate_and_score_completions` returns the same rows with advantages and log
probabilities. Both only look: what goes in and what comes out is the trainer's own.

`step` is the step that the rollouts are generated for, counted as TRL's logs and its
`completions_*.parquet` count it: the first is 1. `policy_version` is how often the weights had
been updated. Rollouts of an evaluation have the step of the weights that were evaluated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import capture
from ..model import Error, Message, Rollout, prompt_task
from ..model.chat import from_chat
from ._arrays import batch_on_host, number, on_host, same_length
from ._messages import after_prompt, split
from .trl_files import prompt_text, read, recognise, said

__all__ = ["attach", "convert", "read", "recognise"]

TASK_COLUMNS = ("task_id", "id", "uid", "index", "idx")
"""Columns of the dataset that name a task. The first that is there is used."""
REFERENCE_COLUMNS = ("solution", "answer", "ground_truth", "reference", "target", "label")
"""Columns of the dataset that hold the ground truth. The first that is there is used."""

_TENSORS = (
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
    `_generate_and_score_completions` returns. `rewards` has a row for each of the `total` rows
    of all processes, of which `first` is this process's first. `ends` are the ids that end a
    completion; one that ends otherwise is truncated. `start` and `end` are the batch's.
    """
    problems = problems if problems is not None else []
    n = len(inputs)
    total = n if total is None else total
    host = batch_on_host(output or {}, _TENSORS)
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


# -- the hook --------------------------------------------------------------------------


def attach(trainer: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """Record every rollout of this trainer. Returns the trainer.

    Project and run are `args.project` and `args.run_name` (else the name of `output_dir`)
    unless given. Does nothing under `ROLLSCOPE=off`.
    """
    with capture.guard("adapter trl: attach"):
        _attach(trainer, project, run)
    return trainer


def _attach(trainer: Any, project: str | None, run: str | None) -> None:
    if getattr(trainer, "_rollscope", None) is not None:
        return
    import trl
    from transformers import TrainerCallback

    seams = ("_calculate_rewards", "_generate_and_score_completions")
    missing = [name for name in seams if not callable(getattr(trainer, name, None))]
    if missing:
        capture.report(
            "trl",
            f"trl {trl.__version__}: {type(trainer).__name__} has no {' and no '.join(missing)}; "
            "nothing is recorded. GRPOTrainer and RLOOTrainer of trl 1.10 to 1.16 have both.",
        )
        return
    args = trainer.args
    joined = capture.join(
        project or getattr(args, "project", None),
        run or getattr(args, "run_name", None) or Path(str(args.output_dir)).name,
        adapter="trl",
        version=trl.__version__,
        seams=(*seams, "on_log", "on_step_end"),
        asked=True,
        config=args.to_dict() if hasattr(args, "to_dict") else None,
    )
    if joined is None:
        return
    tracer = _Tracer(trainer, joined)
    trainer._rollscope = tracer

    class Log(TrainerCallback):  # type: ignore[misc]
        """TRL's numbers, and which rollouts a finished step has learned from."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            with capture.guard("adapter trl: on_log"):
                tracer.metrics(state, logs or {})

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with capture.guard("adapter trl: on_step_end"):
                tracer.step_done(state)

    trainer.add_callback(Log())


class _Tracer:
    """What is known about the batch in hand, between the two methods."""

    def __init__(self, trainer: Any, run: Any) -> None:
        self.trainer = trainer
        self.run = run
        self.dataset: str | None = None  # the one that is evaluated, if it has a name
        self.start = self.end = 0.0
        self.seen: dict[str, Any] | None = None
        self.counts: dict[tuple[str, str | None, int], int] = {}
        self.waiting: list[tuple[int, list[str]]] = []  # micro step, keys not yet trained
        self._score = trainer._calculate_rewards
        self._generate = trainer._generate_and_score_completions
        self._evaluate = getattr(trainer, "evaluation_loop", None)
        trainer._calculate_rewards = self.score
        trainer._generate_and_score_completions = self.generate
        if self._evaluate is not None:
            trainer.evaluation_loop = self.evaluate

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Learns the name of the dataset that is evaluated: metrics begin with `eval_math`."""
        prefix = str(kwargs.get("metric_key_prefix", args[4] if len(args) > 4 else "eval"))
        self.dataset = prefix.removeprefix("eval").removeprefix("_") or None
        try:
            return self._evaluate(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.dataset = None

    def score(self, *args: Any, **kwargs: Any) -> Any:
        names = ("inputs", "prompts", "completions", "completion_ids_list")
        self.seen = {**dict(zip(names, args, strict=False)), **kwargs}
        self.end = time.time()
        try:
            rewards = self._score(*args, **kwargs)
        except Exception as error:
            with capture.guard("adapter trl: a failed reward"):
                self.failed(error)
            raise
        with capture.guard("adapter trl: rewards"):
            extra = getattr(self.trainer, "_pending_extra_logs", {})
            self.seen["extra"] = {name: list(values) for name, values in extra.items()}
            self.seen["rewards"] = rewards
        return rewards

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.seen, self.start = None, time.time()
        output = self._generate(*args, **kwargs)
        with capture.guard("adapter trl: a batch"):
            self.log(output)
        return output

    def log(self, output: Mapping[str, Any]) -> None:
        seen, self.seen = self.seen, None
        if seen is None:
            capture.report(
                "trl",
                "_generate_and_score_completions did not call _calculate_rewards: no rollouts",
            )
            return
        rollouts = self.convert(seen, output)
        self.run.log(rollouts)
        if self.trainer.model.training:
            keys = [r.key for r in rollouts if r.key and r.fate == "scored"]
            self.waiting.append((int(getattr(self.trainer, "_step", 0)), keys))

    def failed(self, error: Exception) -> None:
        seen, self.seen = self.seen or {}, None
        rollouts = self.convert(seen, None)
        for rollout in rollouts:
            rollout.fate, rollout.fate_reason = "failed", "a reward function raised"
            rollout.error = Error(kind="grader", type=type(error).__name__, text=str(error))
        self.run.log(rollouts)

    def convert(self, seen: Mapping[str, Any], output: Mapping[str, Any] | None) -> list[Rollout]:
        trainer = self.trainer
        training = bool(trainer.model.training)
        updates = int(trainer.state.global_step)
        name, step = ("train", updates + 1) if training else ("eval", updates)
        batch = self.counts.get((name, self.dataset, step), 0)
        self.counts = {k: v for k, v in self.counts.items() if k[2] >= updates}
        self.counts[name, self.dataset, step] = batch + 1
        world, n = int(trainer.accelerator.num_processes), len(seen["inputs"])
        tokenizer = getattr(trainer, "_tokenizer", None) or trainer.processing_class
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        size = trainer.num_generations
        if not training:
            size = getattr(trainer, "num_generations_eval", size)
        weights = on_host(getattr(trainer, "reward_weights", None))
        problems: list[str] = []
        rollouts = convert(
            seen["inputs"],
            seen["prompts"],
            seen["completions"],
            seen["completion_ids_list"],
            output,
            rewards=seen.get("rewards"),
            reward_names=list(getattr(trainer, "reward_func_names", ())),
            reward_weights=weights,
            extra=seen.get("extra"),
            num_generations=size,
            first=int(trainer.accelerator.process_index) * n,
            total=world * n,
            step=step,
            split_name=name,
            dataset=self.dataset,
            batch=batch,
            start=self.start or None,
            end=self.end or None,
            policy_version=updates,
            tokenizer=tokenizer,
            ends=(tokenizer.eos_token_id, tokenizer.pad_token_id),
            sampling=_sampling(trainer, output or {}),
            problems=problems,
        )
        for problem in sorted(set(problems)):
            capture.report("trl", problem)
        return rollouts

    def step_done(self, state: Any) -> None:
        """Every row of a batch was learned from when all its slices were used once.

        TRL shuffles the rows before it slices, so with several steps per generation nobody
        can tell which row was in which of them: then `trained_step` is not known.
        """
        args = self.trainer.args
        micro = int(getattr(self.trainer, "_step", 0))
        slices = int(getattr(args, "steps_per_generation", 1) or 1)
        one_step = slices <= int(args.gradient_accumulation_steps)
        facts: dict[str, Any] = {"fate": "trained"}
        if one_step:
            facts["trained_step"] = int(state.global_step)
        done = [keys for start, keys in self.waiting if micro - start >= slices]
        self.waiting = [(s, keys) for s, keys in self.waiting if micro - s < slices]
        for key in (key for keys in done for key in keys):
            self.run.annotate(key=key, **facts)

    def metrics(self, state: Any, logs: Mapping[str, Any]) -> None:
        values = {k: v for k, v in logs.items() if isinstance(v, (int, float))}
        if values and getattr(state, "is_world_process_zero", True):
            self.run.metrics(int(state.global_step), values)


def _sampling(trainer: Any, output: Mapping[str, Any]) -> dict[str, Any]:
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    found = {name: getattr(trainer, name, None) for name in names}
    found["max_tokens"] = getattr(trainer, "max_completion_length", None)
    if "sampling_per_token_logps" in output:
        found["logprobs"] = "processed"  # TRL starts vLLM with --logprobs-mode processed_logprobs
    return {name: value for name, value in found.items() if value is not None}
