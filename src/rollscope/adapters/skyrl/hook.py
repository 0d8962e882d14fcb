"""Watches functions that a SkyRL trainer calls on itself.

| seam | tells |
|---|---|
| `generator.generate` | every rollout, of training and evaluation, kept or not |
| `handle_dynamic_sampling` | groups that are dropped or replaced |
| `_collect_generation_mini_batch` (fully async) | groups that are dropped: no variance |
| `convert_to_training_input` | which rows are trained on |
| `compute_advantages_and_returns` | advantages and the trainer's log probabilities |
| `train_critic_and_policy` | that they really were trained on |
| `tracker.log` | metrics |

A row is dropped only where SkyRL says so: a trainer may generate one batch while it trains on
another. `calls` says which rollout a row is.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ... import capture
from ...model.normalise import as_error
from .._arrays import numbers, on_host, where
from .._record import Recorder, converted
from .._repeats import Repeats
from .._seam import Watcher, Watching
from .calls import GenerateCall, MadeRow, MadeRows, TrainedRow
from .convert import Trajectory, failed, phase, trajectories

_STREAMS = {
    "advantages": "advantage",
    "action_log_probs": "train_logprob",
    "base_action_log_probs": "ref_logprob",
}
"""SkyRL's tensors of one number per response token, and our streams."""

_PATIENCE = 16
"""After so many batches, a rollout is let go of that SkyRL has said nothing about."""

_FLUSH = 10.0
"""Seconds that a failing call may wait for the disk. SkyRL ends the process right after it."""


class _Batch:
    """What is trained on in one step."""

    def __init__(self, step: int | None, rows: list[TrainedRow]) -> None:
        self.step = step
        self.rows = rows
        self.tensors: dict[str, Any] = {}


class SkyRLRecorder(Recorder):
    """What is known about one trainer's rollouts between its seams."""

    def __init__(self, trainer: Any) -> None:
        super().__init__("skyrl", trainer)
        self.is_async = hasattr(trainer, "_collect_generation_mini_batch")
        self.batch: _Batch | None = None
        self.made = MadeRows()
        self.collected: list[tuple[Any, MadeRow]] = []
        """Rows that dynamic sampling has kept until its batch is full, with their list objects."""
        self.numbers = itertools.count()
        self.repeats = Repeats()
        self.ends_the_run = False
        """Is the run over with the training? Ray may kill the process of a task right after it."""

    # -- the seams ---------------------------------------------------------------------

    def watchers(self) -> dict[str, Watcher]:
        found: dict[str, Watcher] = {
            "generator.generate": self.generate,
            "handle_dynamic_sampling": self.sampling,
            "convert_to_training_input": self.training_input,
            "compute_advantages_and_returns": self.advantages,
            "train_critic_and_policy": self.training,
            "train": self.whole_training,
            "tracker.log": self.metrics,
        }
        if self.is_async:
            found["_collect_generation_mini_batch"] = self.mini_batch
        return found

    def generate(self, input_batch: Any, /) -> Watching:
        started = time.time()
        step, version = self._now(input_batch)
        try:
            made = yield
        except BaseException as error:
            self._failed(input_batch, step, version, started, error)
            if not isinstance(error, asyncio.CancelledError):
                self._flush()
            raise
        self._made(input_batch, made, step, version, started)

    def training_input(self, generator_output: Any, uids: Any) -> Watching:
        self.batch = None
        made = self.made.named(generator_output, uids)
        self.batch = _Batch(
            getattr(self.trainer, "global_step", None),
            [_trained_row(generator_output, uids, i, row) for i, row in enumerate(made)],
        )
        yield

    def advantages(self) -> Watching:
        result = yield
        if self.batch is not None:
            self.batch.tensors = _tensors(result, len(self.batch.rows))

    def training(self) -> Watching:
        yield
        batch, self.batch = self.batch, None
        if batch is not None:
            calls = self.made.open_calls()
            self.later(self._trained, batch, calls, holds=(batch.rows, batch.tensors))

    def sampling(self, generator_output: Any, uids: Any) -> Watching:
        given = self._known(generator_output, uids)
        output, kept_uids, is_incomplete = yield
        if is_incomplete:  # what was collected waits in the trainer; without it, all is thrown away
            state = self.trainer.dynamic_sampling_state or {}
            output = state.get("collected_generator_output")
            kept_uids = state.get("collected_uids")
        kept = [] if output is None else self._known(output, kept_uids)
        left = {row for _, row in kept}
        gone = [row for _, row in [*self.collected, *given] if row not in left]
        self.collected = kept if is_incomplete else []
        kind = self.trainer.cfg.trainer.algorithm.dynamic_sampling.type
        if gone:
            self.later(self._dropped, gone, f"dynamic sampling ({kind})")

    def mini_batch(self) -> Watching:
        kept, dropped, exhausted = yield
        self._drop_groups(dropped, "zero variance (sample_full_batch)")
        if exhausted:
            self._drop_groups(kept, "the epoch ended with a partial mini-batch")

    def whole_training(self) -> Watching:
        is_crash = True
        try:
            yield
            is_crash = False
        finally:
            self.later.drain()
            if self.ends_the_run:
                self.run.finish(is_crash=is_crash)

    def metrics(self, data: Mapping[str, Any], step: int) -> Watching:
        values = numbers(data)
        if values:
            self.run.metrics(step, values)
        yield

    # -- on the trainer's own time: snapshots only --------------------------------------

    def _now(self, given: Any) -> tuple[int | None, int | None]:
        """Training step and version of the weights at which a call begins.

        A fully asynchronous trainer prepares its input, then waits for a free slot: what
        `batch_metadata` says is older than the call.
        """
        split, step = phase(given)
        if split == "train":
            step = getattr(self.trainer, "global_step", step)
        version = getattr(self.trainer.inference_engine_client, "weight_version", None)
        return step, version if isinstance(version, int) else None

    def _made(self, given: Any, made: Any, step: Any, version: Any, started: float) -> None:
        call = None
        if phase(given)[0] != "eval":
            call = self.made.add(given, made)
        self.later(
            self._record,
            call,
            _copied(given),
            _copied(made),
            step,
            version,
            started,
            time.time(),
            rollouts=len(given.get("prompts") or made["response_ids"]),
        )

    def _failed(
        self, given: Any, step: Any, version: Any, started: float, error: BaseException
    ) -> None:
        for rollout in failed(given, step=step, version=version):
            rollout.fate = "failed"
            rollout.error = as_error(error)
            rollout.error.kind = "infrastructure"
            rollout.start, rollout.end = started, time.time()
            self._own_key(rollout)
            self.run.log(rollout)

    def _flush(self) -> None:
        """Write what is known. The fully asynchronous trainer ends with `os._exit`."""
        began = time.monotonic()
        self.later.drain(_FLUSH)
        if not self.run.flush(max(began + _FLUSH - time.monotonic(), 0.0)):
            text = f"a call failed, and after {_FLUSH:.0f} s not all was written"
            capture.report("adapter skyrl", text)

    def _known(self, output: Any, uids: Sequence[Any]) -> list[tuple[Any, MadeRow]]:
        """The rows of an output that `generate` made, with their list objects."""
        rows = zip(output["response_ids"], self.made.named(output, uids), strict=True)
        return [(response, row) for response, row in rows if row is not None]

    def _drop_groups(self, groups: Iterable[Any], reason: str) -> None:
        found = []
        for group in groups:
            output = group.generator_output
            uids = [group.uid] * len(output["response_ids"])
            found += [row for _, row in self._known(output, uids)]
        if found:
            self.later(self._dropped, found, reason)

    # -- in the background, one after the other -----------------------------------------

    def _record(
        self,
        call: GenerateCall | None,
        given: Mapping[str, Any],
        made: Mapping[str, Any],
        step: int | None,
        version: int | None,
        started: float,
        ended: float,
    ) -> None:
        found = converted(
            "skyrl",
            trajectories,
            given,
            made,
            tokenizer=self.trainer.tokenizer,
            step=step,
            version=version,
            start=started,
            end=ended,
        )
        for trajectory in found:
            self._own_key(trajectory.rollout)
        if call is not None:
            call.hold(found)
        self.run.log([trajectory.rollout for trajectory in found])

    def _own_key(self, rollout: Any) -> None:
        """Make the key unique: a uid may be asked for twice in a step (a new epoch)."""
        if rollout.key is None:
            rollout.key = f"skyrl/{rollout.split}/{rollout.step}/unmatched/{next(self.numbers)}"
            return
        before = self.repeats.before(rollout.key)
        if before:
            rollout.key += f"#{before}"
            rollout.group = f"{rollout.group}#{before}"

    def _trained(self, batch: _Batch, calls: list[GenerateCall]) -> None:
        used: dict[int, tuple[Trajectory, list[tuple[int, int]]]] = {}
        lost = 0
        for i, row in enumerate(batch.rows):
            place = self.made.place(row)
            if place is None:
                lost += 1
                continue
            trajectory, begin = place
            used.setdefault(id(trajectory), (trajectory, []))[1].append((i, begin))
        if lost:
            capture.report(
                "adapter skyrl", f"{lost} of {len(batch.rows)} trained rows match no rollout"
            )
        for trajectory, rows in used.values():
            self._annotate(batch, trajectory, rows)
        self.made.close(trajectory for trajectory, _ in used.values())
        for _ in range(self.made.grow_older(_PATIENCE, calls)):
            text = f"a rollout was neither trained on in {_PATIENCE} steps nor dropped"
            capture.report("adapter skyrl", f"{text}: it stays `scored`")

    def _annotate(self, batch: _Batch, trajectory: Trajectory, rows: list[tuple[int, int]]) -> None:
        streams: dict[str, list[Any]] = {}
        advantages: list[float] = []
        for i, begin in rows:
            row = batch.rows[i]
            length = len(row.response)
            for name, tensor in batch.tensors.items():
                values = tensor[i][len(tensor[i]) - length :].tolist()
                if name == "advantage":  # it lies on observations, too, where it does not count
                    values = where(row.mask, values)
                    advantages += [v for v in values if v is not None]
                stream = streams.setdefault(name, [None] * trajectory.joined.total)
                stream[begin : begin + length] = values
        self.run.annotate(
            key=trajectory.rollout.key,
            trained_step=batch.step,
            advantage=sum(advantages) / len(advantages) if advantages else None,
            fate="trained" if any(any(batch.rows[i].mask) for i, _ in rows) else "masked",
            streams=streams,
        )

    def _dropped(self, rows: list[MadeRow], reason: str) -> None:
        found = [row.call.of_row.get(row.number) for row in rows]
        ended = {id(t): t for t in found if t is not None}.values()
        for trajectory in ended:
            self.run.annotate(key=trajectory.rollout.key, fate="dropped", fate_reason=reason)
        self.made.close(ended)


def _trained_row(output: Any, uids: Sequence[Any], i: int, made: MadeRow | None) -> TrainedRow:
    tids = output.get("trajectory_ids")
    return TrainedRow(
        made,
        str(uids[i]) if i < len(uids) else "",
        tids[i] if tids is not None and i < len(tids) else None,
        list(output["prompt_token_ids"][i]),
        list(output["response_ids"][i]),
        list(output["loss_masks"][i]),
    )


def _copied(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A copy two levels deep: SkyRL replaces entries of these lists in place."""

    def copied(value: Any) -> Any:
        return value.copy() if isinstance(value, (list, dict)) else value

    return {
        name: [copied(v) for v in value] if isinstance(value, list) else copied(value)
        for name, value in batch.items()
    }


def _tensors(data: Any, rows: int) -> dict[str, Any]:
    """Copies of the tensors with one number per response token, without padding rows."""
    found = {}
    for name, stream in _STREAMS.items():
        values = on_host(data.get(name) if hasattr(data, "get") else data[name])
        if values is not None and len(values) >= rows:
            found[stream] = values[:rows].copy()
    return found
