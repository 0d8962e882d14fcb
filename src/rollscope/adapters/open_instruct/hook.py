"""Watches open-instruct's data preparation, by the names in `open_instruct.data_loader`.

| name | tells |
|---|---|
| `accumulate_inference_batches` | the step; every result that arrives, also stale ones |
| `process_group` | each group before it is filtered, with its row of the dataset |
| `maybe_mask_truncated_completions` | rows that are taken out |
| `pack_sequences`, `prepare_collated_data_for_workers` | what goes to the trainer, and advantages |

The rows of a merged batch are the list objects of the groups. So we recognise a row by its
object, even after others were taken out. The loop runs in a Ray actor. Its class is pickled by
value, with these functions in it; so they are pickled by name, and put in place on arrival.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ... import capture
from ...model import Rollout
from ...model.normalise import as_error
from .._arrays import numbers, on_host
from .._record import Later, converted
from .._repeats import Repeats
from .._seam import Seams, Watching
from .._settings import note
from .convert import convert_group
from .settings import algorithm

MODULE = "open_instruct.data_loader"
SEAMS = (
    "accumulate_inference_batches",
    "process_group",
    "maybe_mask_truncated_completions",
    "pack_sequences",
    "prepare_collated_data_for_workers",
)
ZERO_STD = "zero standard deviation of rewards (filter_zero_std_samples)"
TRUNCATED = "truncated (mask_truncated_completions)"


class _Arrived(NamedTuple):
    """One group, as it came from the engine, and what became of it."""

    result: Any
    outcome: str
    """`kept`, `filtered`, `stale` or `failed`."""
    error: BaseException | None = None


class _KeptSample(NamedTuple):
    """A sample that may be trained on; `response` keeps the object, and so its id, alive."""

    key: str
    response: Any


class _Round(NamedTuple):
    """One step of training, or one evaluation, for which groups are collected."""

    dataset: Any
    tokenizer: Any
    step: int | None
    is_eval: bool


class DataRecorder:
    """What is known between the seams, in one process."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.rows: dict[int, _KeptSample] = {}
        self.packed: tuple[Any, list[Any], list[Any]] | None = None
        self.step: int | None = None
        self.repeats = Repeats()
        self.later: Later | None = None
        self.run: capture.Run | None = None
        self.project: str | None = None
        self.name: str | None = None
        self.parsed: tuple[Any, ...] = ()

    def joined(self) -> capture.Run | None:
        if self.run is None or not self.run.is_on:
            self.run = capture.join(
                self.project,
                self.name,
                adapter="open-instruct",
                seams=SEAMS,
                asked=True,
            )
            note("open-instruct", self.run, algorithm, self.parsed)
            self.later = Later.of("open-instruct", self.run) if self.run is not None else None
        return self.run

    # -- the seams ---------------------------------------------------------------------

    def accumulate_inference_batches(
        self,
        inference_results_Q: Any,
        dataset: Any,
        tokenizer: Any = None,
        training_step: int | None = None,
        replenish_prompts: bool = False,
    ) -> Watching:
        """Every group that arrives for one step, or one round of evaluation."""
        if self.joined() is None:
            return
        queue = _Noting(inference_results_Q)
        self.local.arrived, self.local.queue = [], queue
        asked = _Round(dataset, tokenizer, training_step, not replenish_prompts)
        try:
            yield {"inference_results_Q": queue}
        except BaseException as error:
            # What a time-out put back into the queue will come again.
            if type(error).__name__ != "Empty":
                self._take(asked)
            raise
        self._take(asked)

    def process_group(self, result: Any) -> Watching:
        """One group, before and after it is filtered."""
        try:
            group = yield
        except BaseException as error:
            self._arrived(_Arrived(result, "failed", error))
            raise
        self._arrived(_Arrived(result, "filtered" if group is None else "kept"))

    def maybe_mask_truncated_completions(self, result: Any) -> Watching:
        before = list(result.responses)
        yield
        kept = {id(response) for response in result.responses}
        for response in before:
            row = self.rows.get(id(response))
            if row is not None and id(response) not in kept:
                self._annotate(row.key, fate="dropped", fate_reason=TRUNCATED)

    def pack_sequences(self, responses: Any) -> Watching:
        """Which row is in which packed sequence: its mask holds the row's number plus one."""
        packed = yield
        self.packed = (packed, list(responses), list(packed.response_masks))

    def prepare_collated_data_for_workers(
        self, packed_sequences: Any, dp_world_size: int
    ) -> Watching:
        yield
        known, self.packed = self.packed, None
        if known is not None and known[0] is packed_sequences:
            self._trained(packed_sequences.advantages, known[1], known[2], dp_world_size)

    def metrics(self, metrics: Mapping[str, Any]) -> Watching:
        """`print_rich_single_line_metrics`: what is printed at each step, tracked or not."""
        step = metrics.get("training_step", getattr(self.local, "eval_step", None))
        run = self.joined() if step is not None else None
        if run is not None:
            run.metrics(int(step), numbers(metrics))
        yield

    def maybe_evaluate(self, training_step: int | None = None) -> Watching:
        """The step of an evaluation: its metrics do not say it."""
        self.local.eval_step = training_step
        try:
            yield
        finally:
            self.local.eval_step = None

    def options(self) -> Watching:
        """`parse_args_into_dataclasses`: the project is an option of open-instruct's parser."""
        parsed = yield
        self.parsed = tuple(parsed)
        found = [getattr(p, "wandb_project", None) for p in parsed]
        self.project = next((name for name in found if name), self.project)

    # -- what was seen -----------------------------------------------------------------

    def _arrived(self, arrived: _Arrived) -> None:
        found = getattr(self.local, "arrived", None)
        if found is not None:
            found.append(arrived)

    def _take(self, asked: _Round) -> None:
        """Record all groups of one call. From here on their rows are known by their objects."""
        arrived = getattr(self.local, "arrived", None)
        if arrived is None or self.later is None:
            return
        processed = {id(group.result) for group in arrived}
        stale = [
            _Arrived(result, "stale")
            for result in self.local.queue.results
            if id(result) not in processed and hasattr(result, "responses")
        ]
        self.local.arrived, self.local.queue = None, None
        if not asked.is_eval:
            self.rows, self.step = {}, asked.step
        for group in [*arrived, *stale]:
            responses = group.result.responses
            keys = [self._key(group.result, asked.is_eval, j) for j in range(len(responses))]
            if group.outcome == "kept" and not asked.is_eval:
                for key, response in zip(keys, responses, strict=True):
                    self.rows[id(response)] = _KeptSample(key, response)
            result = group.result
            self.later(
                self._record,
                group,
                keys,
                asked,
                time.time(),
                rollouts=len(keys),
                holds=[getattr(result, n, None) for n in ("responses", "masks", "logprobs")],
            )

    def _key(self, result: Any, is_eval: bool, sample: int) -> str:
        """Unique in this launch: `prompt_id` is the epoch (or the step) and the dataset index."""
        split = "eval" if is_eval else "train"
        return self.repeats.unique(f"open-instruct/{split}/{result.prompt_id}/{sample}")

    def _record(self, group: _Arrived, keys: list[str], asked: _Round, end: float) -> None:
        found = converted(
            "open-instruct",
            convert_group,
            group.result,
            **_example(asked.dataset, group.result.index),
            tokenizer=asked.tokenizer,
            split="eval" if asked.is_eval else "train",
            step=asked.step if asked.is_eval else None,
            end=end,
        )
        for key, rollout in zip(keys, found, strict=True):
            rollout.key = key
            _end(rollout, group, asked.step)
        if self.run is not None:
            self.run.log(found)

    def _trained(
        self, advantages: list[Any], responses: list[Any], masks: list[Any], world: int
    ) -> None:
        """What goes to the trainer. Sequences that do not divide among its ranks are left over."""
        used = len(masks) // world * world
        values: dict[int, float] = {}
        left: set[int] = set()
        for n, (mask, advantage) in enumerate(zip(masks, advantages, strict=True)):
            numbers, per_token = on_host(mask).tolist(), on_host(advantage).tolist()
            for number_, value in zip(numbers, per_token, strict=True):
                if number_ and n < used:
                    values.setdefault(number_ - 1, value)
                elif number_:
                    left.add(number_ - 1)
        step = None if self.step is None else self.step + 1
        lost = 0
        for i, response in enumerate(responses):
            row = self.rows.get(id(response))
            if row is None:
                lost += 1
            elif i in values:
                self._annotate(row.key, advantage=values[i], fate="trained", trained_step=step)
            elif i in left:
                reason = "left over: packed sequences do not divide among the ranks"
                self._annotate(row.key, fate="dropped", fate_reason=reason)
            else:
                self._annotate(row.key, fate="masked", trained_step=step)
        if lost:
            text = f"{lost} of {len(responses)} trained rows match no rollout"
            capture.report("adapter open-instruct", text)

    def _annotate(self, key: str, **facts: Any) -> None:
        if self.run is not None and self.later is not None:
            self.later(self.run.annotate, key=key, **facts)


recorder = DataRecorder()


def seam(module: str, name: str) -> Any:
    """The watched function of this name in this process. It is put in place if need be."""
    from . import install

    install()
    return getattr(sys.modules[module], name)


seams = Seams("open-instruct", "open-instruct", arrive=seam)
"""Functions of modules. Ray sends the actor's class by value, with these names in it."""
methods = Seams("open-instruct", "open-instruct")


class _Noting:
    """A queue that notes what is taken from it."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.results: list[Any] = []

    def get(self, *args: Any, **kwargs: Any) -> Any:
        result = self._queue.get(*args, **kwargs)
        self.results.append(result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _example(dataset: Any, index: Any) -> dict[str, Any]:
    """The row of the dataset that a group was made of, under the names that `convert` knows."""
    names = sys.modules.get("open_instruct.dataset_transformation")
    row = dataset[index]

    def of(constant: str, usual: str) -> Any:
        return row.get(getattr(names, constant, usual))

    return {
        "query": of("INPUT_IDS_PROMPT_KEY", "input_ids_prompt") or (),
        "ground_truth": of("GROUND_TRUTHS_KEY", "ground_truth"),
        "dataset": of("VERIFIER_SOURCE_KEY", "dataset"),
        "raw_query": of("RAW_PROMPT_KEY", "prompt"),
        "active_tools": of("TOOLS_COLUMN_KEY", "tools"),
    }


def _end(rollout: Rollout, group: _Arrived, step: int | None) -> None:
    if group.outcome == "filtered":
        rollout.fate, rollout.fate_reason = "dropped", ZERO_STD
    elif group.outcome == "stale":
        rollout.fate = "dropped"
        rollout.fate_reason = f"stale: weights of step {group.result.model_step} at step {step}"
    elif group.outcome == "failed":
        rollout.fate = "failed"
        rollout.error = None if group.error is None else as_error(group.error)
