"""The hook: watches three methods of a trainer, and adds two callbacks."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import capture
from ...model import Error, Rollout
from .._arrays import numbers, on_host
from .._record import Recorder, converted
from .._seam import Watcher, Watching
from .convert import TENSORS, convert


def attach(trainer: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """Record every rollout of this trainer. Returns the trainer.

    Project and run are `args.project` and `args.run_name` (else the name of `output_dir`)
    unless given. Does nothing under `ROLLSCOPE=off`.
    """
    with capture.guard("adapter trl: attach"):
        _attach(trainer, project, run)
    return trainer


def _attach(trainer: Any, project: str | None, run: str | None) -> None:
    import trl
    from transformers import TrainerCallback

    recorder = TrlRecorder(trainer)
    watchers: dict[str, Watcher] = {
        "_calculate_rewards": recorder.score,
        "_generate_and_score_completions": recorder.generate,
        "evaluation_loop": recorder.evaluate,
    }
    supported = "GRPOTrainer and RLOOTrainer of trl 1.10 to 1.16"
    if not recorder.fits(watchers, "trl", trl.__version__, supported=supported):
        return
    args = trainer.args
    if not recorder.attach(
        project or getattr(args, "project", None),
        run or getattr(args, "run_name", None) or Path(str(args.output_dir)).name,
        args.to_dict() if hasattr(args, "to_dict") else None,
    ):
        return

    class Log(TrainerCallback):  # type: ignore[misc]
        """TRL's metrics, and which rollouts a finished step has learned from."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            with capture.guard("adapter trl: on_log"):
                recorder.metrics(state, logs or {})

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with capture.guard("adapter trl: on_step_end"):
                recorder.step_done(state)

    trainer.add_callback(Log())


class TrlRecorder(Recorder):
    """What is known about the batch in hand, between the methods."""

    def __init__(self, trainer: Any) -> None:
        super().__init__("trl", trainer)
        self.dataset: str | None = None  # the one that is evaluated, if it has a name
        self.start = self.end = 0.0
        self.seen: Any = None  # what `_calculate_rewards` was given, and what it gave
        self.counts: dict[tuple[str, str | None, int], int] = {}
        self.waiting: list[tuple[int, list[str]]] = []  # micro step, keys not yet trained

    # -- the seams ---------------------------------------------------------------------

    def evaluate(self, metric_key_prefix: str = "eval") -> Watching:
        """Learns the name of the dataset that is evaluated: metrics begin with `eval_math`."""
        self.dataset = str(metric_key_prefix).removeprefix("eval").removeprefix("_") or None
        try:
            yield
        finally:
            self.dataset = None

    def score(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any, /
    ) -> Watching:
        self.end = time.time()
        self.seen = {
            "inputs": inputs,
            "prompts": prompts,
            "completions": completions,
            "completion_ids_list": completion_ids_list,
        }
        try:
            rewards = yield
        except Exception as error:
            seen, self.seen = self.seen, None
            why = Error(kind="grader", type=type(error).__name__, text=str(error))
            self.later(self.convert, self.batch(seen, {}), why, None)
            raise
        extra = getattr(self.trainer, "_pending_extra_logs", {})
        self.seen["extra"] = {name: list(values) for name, values in extra.items()}
        self.seen["rewards"] = rewards

    def generate(self) -> Watching:
        self.seen, self.start = None, time.time()
        output = yield
        seen, self.seen = self.seen, None
        if seen is None:
            capture.report(
                "adapter trl",
                "_generate_and_score_completions did not call _calculate_rewards: no rollouts",
            )
            return
        micro = int(getattr(self.trainer, "_step", 0)) if self.trainer.model.training else None
        self.later(self.convert, self.batch(seen, output), None, micro)

    # -- what was seen -----------------------------------------------------------------

    def batch(self, seen: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
        """All that `convert` needs, as it is now: the trainer goes on."""
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
        return {
            "inputs": [dict(row) for row in seen["inputs"]],
            "prompts": [_copied(prompt) for prompt in seen["prompts"]],
            "completions": [_copied(said) for said in seen["completions"]],
            "completion_ids": [list(ids) for ids in seen["completion_ids_list"]],
            "output": {name: _own(output[name]) for name in TENSORS if name in output},
            "rewards": _own(seen.get("rewards")),
            "reward_names": list(getattr(trainer, "reward_func_names", ())),
            "reward_weights": _own(getattr(trainer, "reward_weights", None)),
            "extra": seen.get("extra"),
            "num_generations": size,
            "first": int(trainer.accelerator.process_index) * n,
            "total": world * n,
            "step": step,
            "split_name": name,
            "dataset": self.dataset,
            "batch": batch,
            "start": self.start or None,
            "end": self.end or None,
            "policy_version": updates,
            "tokenizer": tokenizer,
            "ends": (tokenizer.eos_token_id, tokenizer.pad_token_id),
            "sampling": _sampling(trainer, output),
        }

    def convert(self, batch: dict[str, Any], error: Error | None, micro: int | None) -> None:
        rollouts = converted("trl", convert, **batch)
        for rollout in rollouts if error is not None else ():
            rollout.fate, rollout.fate_reason = "failed", "a reward function raised"
            rollout.error = error
        self.run.log(rollouts, groups=_all_groups(rollouts, batch))
        if micro is not None:
            keys = [r.key for r in rollouts if r.key and r.fate == "scored"]
            self.waiting.append((micro, keys))

    def step_done(self, state: Any) -> None:
        """All rows of a batch have been learned from when all its slices were used once.

        TRL shuffles the rows before it slices. So with several steps per generation, nobody can
        tell which row was in which step, and `trained_step` is not known.
        """
        args = self.trainer.args
        micro = int(getattr(self.trainer, "_step", 0))
        slices = int(getattr(args, "steps_per_generation", 1) or 1)
        facts: dict[str, Any] = {"fate": "trained"}
        if slices <= int(args.gradient_accumulation_steps):
            facts["trained_step"] = int(state.global_step)
        self.later(self.trained, micro - slices, facts)

    def trained(self, until: int, facts: dict[str, Any]) -> None:
        done = [keys for micro, keys in self.waiting if micro <= until]
        self.waiting = [(micro, keys) for micro, keys in self.waiting if micro > until]
        for key in (key for keys in done for key in keys):
            self.run.annotate(key=key, **facts)

    def metrics(self, state: Any, logs: Mapping[str, Any]) -> None:
        values = numbers(logs)
        if values and getattr(state, "is_world_process_zero", True):
            self.run.metrics(int(state.global_step), values)


def _all_groups(rollouts: list[Rollout], batch: Mapping[str, Any]) -> dict[str, int] | None:
    """The groups of the whole batch, on all processes, with their sizes. A group may lie on two.

    None if this process has all of them, or if they are not known.
    """
    size, total = batch["num_generations"], batch["total"]
    if len(rollouts) == total or not all(rollout.group for rollout in rollouts):
        return None
    place = str(rollouts[0].group).rpartition("/")[0]
    return {f"{place}/{n}": size for n in range(total // size)}


def _sampling(trainer: Any, output: Mapping[str, Any]) -> dict[str, Any]:
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    found = {name: getattr(trainer, name, None) for name in names}
    found["max_tokens"] = getattr(trainer, "max_completion_length", None)
    if "sampling_per_token_logps" in output:
        found["logprobs"] = "processed"  # TRL starts vLLM with --logprobs-mode processed_logprobs
    return {name: value for name, value in found.items() if value is not None}


def _own(values: Any) -> Any:
    """On the host and not shared with the trainer."""
    host = on_host(values)
    return host.copy() if host is not values and hasattr(host, "copy") else copy.copy(host)


def _copied(said: Any) -> Any:
    """A text, or messages that reward functions may go on changing."""
    return [dict(m) for m in said] if isinstance(said, list) else said
