"""The hook: watches methods of a trainer, and adds a callback."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import capture
from ...capture.settings import setting
from ...model import Error, Rollout
from ...model.normalise import as_error
from .._arrays import batch_on_host, numbers, on_host
from .._record import Recorder, converted
from .._seam import Watcher, Watching
from .._settings import note
from .convert import TENSORS, convert
from .rows import ROW_TENSORS, Learning, Row
from .settings import algorithm

SUPPORTED = "GRPOTrainer and RLOOTrainer of trl 0.21 to 1.16"


def attach(trainer: Any, *, project: str | None = None, run: str | None = None) -> Any:
    """Record every rollout of this trainer. Returns the trainer.

    Project and run are `args.project` and `args.run_name` (else the name of `output_dir`)
    unless given. Each `train()` that begins anew is a run of its own. Does nothing under
    `ROLLSCOPE=off`.
    """
    with capture.guard("adapter trl: attach"):
        before = getattr(trainer, "_rollscope", None)
        if isinstance(before, TrlRecorder):
            before.name(project, run)
        elif setting("ROLLSCOPE") is not False:
            _attach(trainer, project, run)
    return trainer


def _attach(trainer: Any, project: str | None, run: str | None) -> None:
    import trl
    from transformers import TrainerCallback

    recorder = TrlRecorder(trainer)
    if not recorder.fits(recorder.watchers(), "trl", trl.__version__, supported=SUPPORTED):
        return
    recorder.name(project, run)
    recorder.watch()

    class Log(TrainerCallback):  # type: ignore[misc]
        """Where a training begins, TRL's metrics, and what a finished step has learned from."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with capture.guard("adapter trl: on_train_begin"):
                recorder.training_begins(is_resumed=int(state.global_step) > 0)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            with capture.guard("adapter trl: on_log"):
                recorder.metrics(state, logs or {})

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with capture.guard("adapter trl: on_step_end"):
                recorder.step_done(state)

    trainer.add_callback(Log())


class _Names(NamedTuple):
    project: str | None
    run: str | None
    named: bool
    """Did a person give one of them to `attach`?"""


class TrlRecorder(Recorder):
    """What is known about the batch in hand, between the methods."""

    def __init__(self, trainer: Any) -> None:
        super().__init__("trl", trainer)
        self.names = _Names(None, None, False)
        self.training = 0  # its number among the trainings that share a run
        self.has_trained = False
        self.dataset: str | None = None  # the one that is evaluated, if it has a name
        self.start = self.end = 0.0
        self.generated: tuple[Any, Any] | None = None  # prompts and completions, as ids
        self.seen: dict[str, Any] | None = None  # what `_calculate_rewards` was given, and gave
        self.is_grading = False
        self.counts: dict[tuple[str, str | None, int], int] = {}
        self.in_loss: list[Any] = []  # batches that went into the loss since the last step
        self.learning = Learning()

    def watchers(self) -> dict[str, Watcher]:
        made: dict[str, Watcher] = {
            "_calculate_rewards": self.score,
            "_generate_and_score_completions": self.generate,
            "_prepare_inputs": self.prepare,
            "evaluation_loop": self.evaluate,
        }
        if hasattr(self.trainer, "_generate"):  # since 0.24
            made["_generate"] = self.shown
        return made

    # -- the run -----------------------------------------------------------------------

    def name(self, project: str | None, run: str | None) -> None:
        """What the run is to be called, from the next training on."""
        own = _own_names(self.trainer.args)
        self.names = _Names(project or own[0], run or own[1], bool(project or run))
        if self.is_on and self.names.named and (project, run) != (self.run.project, self.run.name):
            self.has_trained = True  # another name is another run

    def training_begins(self, is_resumed: bool) -> None:
        """TRL begins to train. One that is not resumed never goes into a run with another one."""
        if not self.is_on or (self.has_trained and not is_resumed):
            self.begin(is_resumed)
        self.has_trained = True

    def begin(self, is_resumed: bool = False) -> bool:
        """Join a run. False: recording is off."""
        args = self.trainer.args
        config = args.to_dict() if hasattr(args, "to_dict") else None
        if not self.join(*self.names[:2], config, named=self.names.named, anew=not is_resumed):
            return False
        note("trl", self.run, algorithm, self.trainer)
        self.training = max(self.run.trainings[self.adapter] - 1, 0)
        self.counts, self.in_loss, self.learning = {}, [], Learning()
        return True

    # -- the seams ---------------------------------------------------------------------

    def evaluate(self, metric_key_prefix: str = "eval") -> Watching:
        """Learns the name of the dataset that is evaluated: metrics begin with `eval_math`."""
        self.dataset = str(metric_key_prefix).removeprefix("eval").removeprefix("_") or None
        try:
            yield
        finally:
            self.dataset = None

    def shown(self) -> Watching:
        """Learns what the model was shown, as ids."""
        made = yield
        if isinstance(made, tuple) and len(made) > 1:
            self.generated = made[0], made[1]

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
        self.is_grading = True
        rewards = yield
        self.is_grading = False
        extra = getattr(self.trainer, "_pending_extra_logs", {})
        self.seen["extra"] = {name: list(values) for name, values in extra.items()}
        self.seen["rewards"] = rewards

    def generate(self) -> Watching:
        self.seen, self.generated, self.is_grading, self.start = None, None, False, time.time()
        if not self.is_on and not self.begin():
            return
        try:
            output = yield
        except BaseException as error:
            self._interrupted(error)
            raise
        self._generated(output)

    def _generated(self, output: Any) -> None:
        if self.seen is None:
            capture.report(
                "adapter trl",
                "_generate_and_score_completions did not call _calculate_rewards: no rollouts",
            )
            return
        self._log_later(self._batch(self.seen, output))

    def _interrupted(self, error: BaseException) -> None:
        """A reward function raised, or somebody pressed Ctrl-C: keep what was generated."""
        if self.seen is None:
            return
        failed = None
        if self.is_grading:
            kind = "grader" if isinstance(error, Exception) else None
            failed = as_error(error, kind)
        self._log_later(self._batch(self.seen, {}), failed)

    def prepare(self) -> Watching:
        """What goes into the loss."""
        inputs = yield
        if self.is_on and self.trainer.model.training and isinstance(inputs, Mapping):
            self.in_loss.append({k: _own(v) for k, v in batch_on_host(inputs, ROW_TENSORS).items()})

    # -- what was seen -----------------------------------------------------------------

    def _batch(self, seen: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
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
        ends = getattr(trainer, "eos_token_ids", None) or (tokenizer.eos_token_id,)
        size = trainer.num_generations
        if not training:
            size = getattr(trainer, "num_generations_eval", size)
        completion_ids = [list(ids) for ids in seen["completion_ids_list"]]
        return {
            "inputs": [dict(row) for row in seen["inputs"]],
            "prompts": [_copied(prompt) for prompt in seen["prompts"]],
            "completions": [_copied(said) for said in seen["completions"]],
            "completion_ids": completion_ids,
            "prompt_ids": self._prompts_of(completion_ids),
            "output": {name: _own(output[name]) for name in TENSORS if name in output},
            "rewards": _own(seen.get("rewards")),
            "reward_names": list(getattr(trainer, "reward_func_names", ())),
            "reward_weights": _own(getattr(trainer, "reward_weights", None)),
            "extra": seen.get("extra"),
            "has_environments": bool(getattr(trainer, "environments", None)),
            "num_generations": size,
            "first": int(trainer.accelerator.process_index) * n,
            "total": world * n,
            "step": step,
            "split_name": name,
            "dataset": self.dataset,
            "training": self.training,
            "batch": batch,
            "start": self.start or None,
            "end": self.end or None,
            "policy_version": updates,
            "tokenizer": tokenizer,
            "pad": tokenizer.pad_token_id,
            "ends": (*ends, tokenizer.pad_token_id),
            "sampling": _sampling(trainer, output),
        }

    def _prompts_of(self, completion_ids: Sequence[list[int]]) -> list[list[int]] | None:
        """The prompts' ids, if these are the completions that they were generated for."""
        if self.generated is None:
            return None
        prompts, completions = ([list(ids) for ids in part] for part in self.generated)
        return (
            prompts if completions == completion_ids and len(prompts) == len(completions) else None
        )

    def _log_later(self, batch: dict[str, Any], failed: Error | None = None) -> None:
        rollouts = len(batch["inputs"])
        self.later(self._log_batch, batch, self.learning, failed, rollouts=rollouts)

    def _log_batch(
        self, batch: dict[str, Any], learning: Learning, error: Error | None = None
    ) -> None:
        rows: list[Row | None] = []
        rollouts: list[Rollout] = converted("trl", convert, **batch, rows=rows)
        if error is not None:
            why = "a reward function raised" if error.kind else "interrupted while it was scored"
            for rollout in rollouts:
                rollout.fate, rollout.fate_reason, rollout.error = "failed", why, error
        self.run.log(rollouts, groups=_all_groups(rollouts, batch))
        if batch["split_name"] == "train":
            for row, rollout in zip(rows, rollouts, strict=True):
                if row is not None and rollout.fate == "scored":
                    learning.add(row, str(rollout.key), rollout.advantage)

    def step_done(self, state: Any) -> None:
        """An optimizer step is over: it has learned from what went into the loss since the last."""
        batches, self.in_loss = self.in_loss, []
        if self.is_on:
            tokenizer = getattr(self.trainer, "_tokenizer", None) or self.trainer.processing_class
            pad = getattr(tokenizer, "tokenizer", tokenizer).pad_token_id
            self.later(self._learned, self.learning, batches, pad, int(state.global_step))

    def _learned(self, learning: Learning, batches: list[Any], pad: int, step: int) -> None:
        learned, unknown = learning.step(batches, pad, step)
        for key, facts in learned.items():
            self.run.annotate(key=key, **facts)
        if unknown:
            capture.report("adapter trl", f"{unknown} rows were learned from that no rollout has")

    def metrics(self, state: Any, logs: Mapping[str, Any]) -> None:
        values = numbers(logs)
        if self.is_on and values and getattr(state, "is_world_process_zero", True):
            self.run.metrics(int(state.global_step), values)


def _own_names(args: Any) -> tuple[str, str | None]:
    """What TRL calls project and run. Its defaults are no names: `huggingface` is the project of
    everybody, and the run was once called like the whole `output_dir`."""
    defaults = {f.name: f.default for f in dataclasses.fields(args)} if _is_data(args) else {}
    project = getattr(args, "project", None)
    project = None if project == defaults.get("project") else project
    name, output = getattr(args, "run_name", None), getattr(args, "output_dir", None)
    if not name or str(name) == str(output):
        name = Path(str(output)).name if output else None
    return project or "trl", name


def _is_data(args: Any) -> bool:
    return dataclasses.is_dataclass(args) and not isinstance(args, type)


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
