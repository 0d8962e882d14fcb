"""Watches open-instruct's data preparation, by the names in `open_instruct.data_loader`.

| name | tells |
|---|---|
| `accumulate_inference_batches` | the step; every result that arrives, also stale ones |
| `process_group` | each group before it is filtered, with its row of the dataset |
| `maybe_mask_truncated_completions` | rows that are taken out |
| `pack_sequences`, `prepare_collated_data_for_workers` | what goes to the trainer, and advantages |

The rows of a merged batch are the groups' own list objects: by them a row is known, whatever
is taken out between. The loop runs in a Ray actor whose class is pickled by value, with these
names in it; a `Seam` is pickled by name, and puts itself in place where it arrives.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import capture
from ...model import Error, Rollout
from .._arrays import number, on_host
from .._later import Later
from .._repeats import Repeats
from .convert import convert_group

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


class _Row(NamedTuple):
    """A sample that may be trained on; `response` keeps the object, and so its id, alive."""

    key: str
    response: Any


class Recorder:
    """What is known between the seams, in one process."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.rows: dict[int, _Row] = {}
        self.packed: tuple[Any, list[Any], list[Any]] | None = None
        self.step: int | None = None
        self.repeats = Repeats()
        self.later: Later | None = None
        self.run: capture.Run | None = None
        self.project: str | None = None
        self.name: str | None = None

    def joined(self) -> capture.Run | None:
        if self.run is None or not self.run.is_on:
            self.run = capture.join(
                self.project,
                self.name,
                adapter="open-instruct",
                seams=SEAMS,
                asked=True,
            )
            self.later = Later("open-instruct", self.run) if self.run is not None else None
        return self.run

    # -- the seams ---------------------------------------------------------------------

    def accumulate_inference_batches(
        self, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Every group that arrives for one step, or one round of evaluation."""
        bound: dict[str, Any] = {}
        with capture.guard("adapter open-instruct: accumulate_inference_batches"):
            if self.joined() is not None:
                call = inspect.signature(original).bind(*args, **kwargs)
                call.apply_defaults()
                queue = _Noting(call.arguments["inference_results_Q"])
                bound = dict(call.arguments)
                call.arguments["inference_results_Q"] = queue
                self.local.arrived, self.local.queue = [], queue
                args, kwargs = call.args, call.kwargs
        try:
            out = original(*args, **kwargs)
        except BaseException as error:
            with capture.guard("adapter open-instruct: accumulate_inference_batches"):
                # What a time-out put back into the queue will come again.
                if type(error).__name__ != "Empty":
                    self._take(bound)
            raise
        with capture.guard("adapter open-instruct: accumulate_inference_batches"):
            self._take(bound)
        return out

    def process_group(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One group, before and after it is filtered."""
        result = kwargs.get("result", args[0] if args else None)
        try:
            group = original(*args, **kwargs)
        except BaseException as error:
            with capture.guard("adapter open-instruct: process_group"):
                self._arrived(_Arrived(result, "failed", error))
            raise
        with capture.guard("adapter open-instruct: process_group"):
            self._arrived(_Arrived(result, "filtered" if group is None else "kept"))
        return group

    def maybe_mask_truncated_completions(
        self, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        before: list[Any] = []
        result = kwargs.get("result", args[0] if args else None)
        with capture.guard("adapter open-instruct: maybe_mask_truncated_completions"):
            before = list(result.responses)
        batch = original(*args, **kwargs)
        with capture.guard("adapter open-instruct: maybe_mask_truncated_completions"):
            kept = {id(response) for response in result.responses}
            for response in before:
                row = self.rows.get(id(response))
                if row is not None and id(response) not in kept:
                    self._annotate(row.key, fate="dropped", fate_reason=TRUNCATED)
        return batch

    def pack_sequences(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Which row is in which packed sequence: its mask holds the row's number plus one."""
        packed = original(*args, **kwargs)
        with capture.guard("adapter open-instruct: pack_sequences"):
            responses = kwargs.get("responses", args[1] if len(args) > 1 else [])
            self.packed = (packed, list(responses), list(packed.response_masks))
        return packed

    def prepare_collated_data_for_workers(
        self, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        out = original(*args, **kwargs)
        with capture.guard("adapter open-instruct: prepare_collated_data_for_workers"):
            packed = kwargs.get("packed_sequences", args[0] if args else None)
            world = kwargs.get("dp_world_size", args[1] if len(args) > 1 else 1)
            known, self.packed = self.packed, None
            if known is not None and known[0] is packed:
                self._trained(packed.advantages, known[1], known[2], world)
        return out

    # -- what was seen -----------------------------------------------------------------

    def _arrived(self, arrived: _Arrived) -> None:
        found = getattr(self.local, "arrived", None)
        if found is not None:
            found.append(arrived)

    def _take(self, bound: Mapping[str, Any]) -> None:
        """Record all groups of one call; from here on their rows are known by their objects."""
        arrived = getattr(self.local, "arrived", None)
        if not bound or arrived is None or self.later is None:
            return
        processed = {id(group.result) for group in arrived}
        stale = [
            _Arrived(result, "stale")
            for result in self.local.queue.results
            if id(result) not in processed and hasattr(result, "responses")
        ]
        self.local.arrived, self.local.queue = None, None
        is_eval = not bound.get("replenish_prompts")
        if not is_eval:
            self.rows, self.step = {}, bound.get("training_step")
        for group in [*arrived, *stale]:
            keys = [self._key(group.result, is_eval, j) for j in range(len(group.result.responses))]
            if group.outcome == "kept" and not is_eval:
                for key, response in zip(keys, group.result.responses, strict=True):
                    self.rows[id(response)] = _Row(key, response)
            self.later(self._record, group, keys, dict(bound), is_eval, time.time())

    def _key(self, result: Any, is_eval: bool, sample: int) -> str:
        """Unique in this launch: `prompt_id` is the epoch (or the step) and the dataset index."""
        split = "eval" if is_eval else "train"
        return self.repeats.unique(f"open-instruct/{split}/{result.prompt_id}/{sample}")

    def _record(
        self,
        group: _Arrived,
        keys: list[str],
        bound: Mapping[str, Any],
        is_eval: bool,
        end: float,
    ) -> None:
        problems: list[str] = []
        step = bound.get("training_step")
        found = convert_group(
            group.result,
            **_example(bound, group.result.index),
            tokenizer=bound.get("tokenizer"),
            split="eval" if is_eval else "train",
            step=step if is_eval else None,
            end=end,
            problems=problems,
        )
        for text in dict.fromkeys(problems):
            capture.report("open-instruct", text)
        for key, rollout in zip(keys, found, strict=True):
            rollout.key = key
            _end(rollout, group, step)
        if self.run is not None:
            self.run.log(found)

    def _trained(
        self, advantages: list[Any], responses: list[Any], masks: list[Any], world: int
    ) -> None:
        """What goes to the trainer; sequences that do not divide among its ranks are left over."""
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
            capture.report("open-instruct", text)

    def _annotate(self, key: str, **facts: Any) -> None:
        if self.run is not None and self.later is not None:
            self.later(functools.partial(self.run.annotate, key=key, **facts))

    def metrics(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """`print_rich_single_line_metrics`: what is printed at each step, tracked or not."""
        with capture.guard("adapter open-instruct: metrics"):
            values = kwargs.get("metrics", args[0] if args else {})
            step = values.get("training_step", getattr(self.local, "eval_step", None))
            run = self.joined() if step is not None else None
            if run is not None:
                run.metrics(int(step), {k: v for k, v in values.items() if number(v) is not None})
        return original(*args, **kwargs)

    def maybe_evaluate(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The step of an evaluation: its metrics do not say it."""
        self.local.eval_step = kwargs.get("training_step", args[1] if len(args) > 1 else None)
        try:
            return original(*args, **kwargs)
        finally:
            self.local.eval_step = None


recorder = Recorder()


class Seam:
    """Stands in the place of a function. Pickled by name, it arrives as that process's own."""

    def __init__(self, module: str, name: str, original: Any, watch: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self.module, self.name, self.original, self.watch = module, name, original, watch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.watch(self.original, args, kwargs)

    def __reduce__(self) -> Any:
        return seam, (self.module, self.name)


def seam(module: str, name: str) -> Any:
    """The seam of this name in this process, put in place if it is not yet."""
    from . import install

    install()
    return getattr(sys.modules[module], name)


def replace(module: Any, name: str, watch: Callable[..., Any]) -> bool:
    """Put a seam in place. False if there is no such function."""
    original = getattr(module, name, None)
    if original is None:
        return False
    if not isinstance(original, Seam):
        setattr(module, name, Seam(module.__name__, name, original, watch))
    return True


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


def _example(bound: Mapping[str, Any], index: Any) -> dict[str, Any]:
    """The row of the dataset that a group was made of, under the names that `convert` knows."""
    names = sys.modules.get("open_instruct.dataset_transformation")
    row = bound["dataset"][index]

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
        error = group.error
        rollout.fate = "failed"
        rollout.error = Error(type=type(error).__name__, text=str(error) or None)
