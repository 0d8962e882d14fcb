"""Watches functions that a SkyRL trainer calls on itself.

| seam | tells |
|---|---|
| `generator.generate` | every rollout, of training and evaluation, kept or not |
| `convert_to_training_input` | which rows are trained on |
| `compute_advantages_and_returns` | advantages and the trainer's log probabilities |
| `train_critic_and_policy` | that they really were trained on |
| `_collect_generation_mini_batch` (fully async) | groups that are dropped: no variance |
| `tracker.log` | metrics |

A training row carries no id in SkyRL's default mode. We know it by its list object, which SkyRL
passes on through filtering and concatenation. Where rows are copied (merged turns, replaced
samples), we know it by trajectory id and tokens. If neither finds it, it is counted and left
alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ... import capture
from ...model.normalise import as_error
from .._arrays import numbers, on_host
from .._record import Recorder, converted
from .._repeats import Repeats
from .._seam import Watcher, Watching
from .convert import Trajectory, failed, phase, trajectories

_STREAMS = {
    "advantages": "advantage",
    "action_log_probs": "train_logprob",
    "base_action_log_probs": "ref_logprob",
}
"""SkyRL's tensors of one number per response token, and our streams."""


class _GenerateCall:
    """One `generate` call of training, until it is known what became of all its rollouts."""

    def __init__(self, made: Mapping[str, Any]) -> None:
        self.responses = list(made["response_ids"])  # keeps the objects, and so their ids, alive
        self.found: list[Trajectory] = []
        self.open: set[int] = set()
        """Numbers of the trajectories in `found` whose end is not known yet."""


class _TrainedRow(NamedTuple):
    call: _GenerateCall | None
    row: int
    uid: str
    tid: Any
    prompt: list[int]
    response: list[int]
    mask: list[int]


class _Batch:
    """What is trained on in one step."""

    def __init__(self, step: int | None, rows: list[_TrainedRow]) -> None:
        self.step = step
        self.rows = rows
        self.tensors: dict[str, Any] = {}


class SkyRLRecorder(Recorder):
    """What is known about one trainer's rollouts between its seams."""

    def __init__(self, trainer: Any) -> None:
        super().__init__("skyrl", trainer)
        self.is_async = hasattr(trainer, "_collect_generation_mini_batch")
        self.batch: _Batch | None = None
        self.calls: list[_GenerateCall] = []
        self.rows: dict[int, tuple[_GenerateCall, int]] = {}
        self.numbers = itertools.count()
        self.repeats = Repeats()

    # -- the seams ---------------------------------------------------------------------

    def watchers(self) -> dict[str, Watcher]:
        found: dict[str, Watcher] = {
            "generator.generate": self.generate,
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
            raise
        self._made(input_batch, made, step, version, started)

    def training_input(self, generator_output: Any, uids: Any) -> Watching:
        self.batch = None
        self.batch = _Batch(
            getattr(self.trainer, "global_step", None),
            [
                self._trained_row(generator_output, uids, i)
                for i in range(len(generator_output["response_ids"]))
            ],
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
            self.later(self._trained, batch)

    def mini_batch(self) -> Watching:
        kept, dropped, exhausted = yield
        self._drop_groups(dropped, "zero variance (sample_full_batch)")
        if exhausted:
            self._drop_groups(kept, "the epoch ended with a partial mini-batch")

    def whole_training(self) -> Watching:
        try:
            yield
        finally:
            self.later.drain()

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
            call = _GenerateCall(made)
            self.calls.append(call)
            for i, response in enumerate(call.responses):
                self.rows[id(response)] = (call, i)
        self.later(
            self._record, call, _copied(given), _copied(made), step, version, started, time.time()
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

    def _trained_row(self, output: Any, uids: Sequence[Any], i: int) -> _TrainedRow:
        response = output["response_ids"][i]
        call, row = self.rows.get(id(response), (None, -1))
        tids = output.get("trajectory_ids")
        return _TrainedRow(
            call,
            row,
            str(uids[i]) if i < len(uids) else "",
            tids[i] if tids is not None and i < len(tids) else None,
            list(output["prompt_token_ids"][i]),
            list(response),
            list(output["loss_masks"][i]),
        )

    def _drop_groups(self, groups: Iterable[Any], reason: str) -> None:
        found = [
            self.rows[id(response)]
            for group in groups
            for response in group.generator_output["response_ids"]
            if id(response) in self.rows
        ]
        if found:
            self.later(self._dropped, found, reason)

    # -- in the background, one after the other -----------------------------------------

    def _record(
        self,
        call: _GenerateCall | None,
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
            call.found = found
            call.open = set(range(len(found)))
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

    def _trained(self, batch: _Batch) -> None:
        used: dict[int, tuple[Trajectory, list[tuple[int, int]]]] = {}
        lost = 0
        for i, row in enumerate(batch.rows):
            place = self._place(row)
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
        self._close({id(trajectory) for trajectory, _ in used.values()})
        if not self.is_async:  # what this step generated and did not train on is gone
            rest = [t for call in self.calls for n, t in enumerate(call.found) if n in call.open]
            kind = getattr(self.trainer.cfg.trainer.algorithm.dynamic_sampling, "type", None)
            reason = f"dynamic sampling ({kind})" if kind else "not in the training batch"
            self._end(rest, reason)

    def _place(self, row: _TrainedRow) -> tuple[Trajectory, int] | None:
        """The rollout of a trained row, and where its response begins among its tokens."""
        if row.call is not None:
            for trajectory in row.call.found:
                if row.row in trajectory.rows:
                    begin, length = trajectory.joined.responses[trajectory.rows.index(row.row)]
                    return (trajectory, begin) if length == len(row.response) else None
            return None
        for call in self.calls:
            for trajectory in call.found:
                at = _begin(trajectory, row) if _is_named(trajectory, row) else None
                if at is not None:
                    return trajectory, at
        return None

    def _annotate(self, batch: _Batch, trajectory: Trajectory, rows: list[tuple[int, int]]) -> None:
        streams: dict[str, list[Any]] = {}
        advantages: list[float] = []
        for i, begin in rows:
            row = batch.rows[i]
            length = len(row.response)
            for name, tensor in batch.tensors.items():
                values = tensor[i][len(tensor[i]) - length :].tolist()
                if name == "advantage":  # it lies on observations, too, where it does not count
                    values = [v if m else None for v, m in zip(values, row.mask, strict=True)]
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

    def _dropped(self, rows: list[tuple[_GenerateCall, int]], reason: str) -> None:
        found = {id(t): t for call, row in rows for t in call.found if row in t.rows}
        self._end(list(found.values()), reason)

    def _end(self, found: list[Trajectory], reason: str) -> None:
        for trajectory in found:
            self.run.annotate(key=trajectory.rollout.key, fate="dropped", fate_reason=reason)
        self._close({id(trajectory) for trajectory in found})

    def _close(self, ended: set[int]) -> None:
        """Forget rollouts whose end is known, and calls without any rollouts left."""
        for call in self.calls:
            call.open -= {n for n, trajectory in enumerate(call.found) if id(trajectory) in ended}
        done = [call for call in self.calls if call.found and not call.open]
        self.calls = [call for call in self.calls if call not in done]
        for call in done:
            for response in call.responses:
                self.rows.pop(id(response), None)


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


def _is_named(trajectory: Trajectory, row: _TrainedRow) -> bool:
    rollout = trajectory.rollout
    if rollout.group is None or rollout.group.partition("#")[0].rpartition("/")[2] != row.uid:
        return False
    return row.tid is None or rollout.index == row.tid.repetition_id


def _begin(trajectory: Trajectory, row: _TrainedRow) -> int | None:
    """Where exactly these tokens lie, at the beginning of a response of the rollout."""
    ids = [i for m in trajectory.rollout.messages if m.tokens is not None for i in m.tokens.ids]
    for begin, _ in trajectory.joined.responses:
        if ids[begin : begin + len(row.response)] == row.response:
            return begin
    return None
