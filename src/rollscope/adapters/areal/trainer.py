"""Watches AReaL's trainer: advantages, and what was really trained on.

`compute_advantages` has the rows, `ppo_update` trains on them, and only `stats_logger.commit`
knows the step. AReaL carries no id from the rollout workers to here: rows are found by the
digest that both sides compute.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ... import capture
from .._arrays import batch_on_host, numbers
from .._record import Recorder
from .._seam import Watcher, Watching
from .hook import rows
from .rows import digest, rows_of
from .workflows import recorded

_ROW = ("input_ids", "attention_mask", "loss_mask", "logprobs", "versions")
_AFTER = ("advantages", "tot_rewards", "kl_rewards")


class TrainerRecorder(Recorder):
    """What is known about the batch that is being trained on."""

    def __init__(self, trainer: Any) -> None:
        super().__init__("areal", trainer)
        self.batch: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
        self.is_trained = False

    def watchers(self) -> dict[str, Watcher]:
        return {
            "train": self.train,
            "actor.compute_advantages": self.advantages,
            "actor.ppo_update": self.update,
            "stats_logger.commit": self.commit,
        }

    def watch(self) -> None:
        rows.is_asked = True
        super().watch()

    def train(
        self,
        workflow: Any = None,
        eval_workflow: Any = None,
        workflow_kwargs: Any = None,
        eval_workflow_kwargs: Any = None,
    ) -> Watching:
        """Give AReaL the workflows of training and evaluation as ones that are recorded."""
        changes: dict[str, Any] = {}
        given = (("", workflow, workflow_kwargs), ("eval_", eval_workflow, eval_workflow_kwargs))
        for kind, one, kwargs in given:
            with capture.guard(f"adapter areal: {kind}workflow"):
                ours = recorded(one, kwargs)
                changes |= {f"{kind}{name}": value for name, value in (ours or {}).items()}
        yield changes

    def advantages(self, data: Any, /) -> Watching:
        # It overwrites mask and log probabilities, shifted by one.
        before = [[_copied(row) for row in rows_of(_local(group, _ROW))] for group in data]
        result = yield
        after = [batch_on_host(_local(group, _AFTER), _AFTER) for group in result]
        self.is_trained = False
        self.batch = []
        if len(before) == len(after):
            self.batch = [(b, _copied(a)) for b, a in zip(before, after, strict=True)]
        else:
            text = f"{len(before)} groups went in, {len(after)} came out"
            capture.report("adapter areal", f"compute_advantages: {text}; advantages unmatched")

    def update(self) -> Watching:
        yield
        self.is_trained = True

    def commit(self, global_step: int, data: Any) -> Watching:
        batch, self.batch = self.batch, []
        if batch:
            self.later(self._annotate, batch, global_step, self.is_trained)
        last = getattr(self.trainer.stats_logger, "_last_commit_step", -1)
        first = max(global_step, last + 1)
        for i, item in enumerate([data] if isinstance(data, Mapping) else data):
            values = {k: v for k, v in numbers(item).items() if not k.endswith("__count")}
            if values:
                self.run.metrics(first + i, values)
        yield

    def _annotate(
        self,
        batch: list[tuple[list[dict[str, Any]], dict[str, Any]]],
        step: int,
        is_trained: bool,
    ) -> None:
        found: dict[str, dict[str, Any]] = {}
        for group, after in batch:
            for i, row in enumerate(group):
                ids = row["input_ids"]
                name = digest(ids, row.get("versions"), row.get("logprobs"))
                known = rows.take(name, len(ids))
                fact = found.setdefault(
                    known.key, {"stream": [None] * known.total, "values": [], "masks": 0}
                )
                if sum(map(len, known.places)) != len(ids):
                    capture.report("adapter areal", "a trained row is not as long as its rollout")
                    continue
                mask = [bool(m) for m in row["loss_mask"].tolist()]
                values = unshifted(after["advantages"][i], mask)
                for place, value in zip(itertools.chain(*known.places), values, strict=True):
                    if value is not None:
                        fact["stream"][place] = value
                        fact["values"].append(value)
                fact["masks"] += sum(mask)
                fact["normalised"] = _normalised(after, i, len(ids))
        for key, fact in found.items():
            values = fact["values"]
            normalised = fact.get("normalised")
            self.run.annotate(
                key=key,
                trained_step=step if is_trained else None,
                advantage=sum(values) / len(values) if values else None,
                rewards=None if normalised is None else {"normalised": normalised},
                fate=("trained" if fact["masks"] else "masked") if is_trained else None,
                streams={"advantage": fact["stream"]},
            )


def unshifted(advantages: Any, mask: Sequence[bool]) -> list[float | None]:
    """One advantage per token. AReaL keeps that of token t at t-1, where it is predicted."""
    values = advantages.tolist()
    return [
        values[t - 1] if counts and 0 < t <= len(values) else None for t, counts in enumerate(mask)
    ]


def _normalised(after: Mapping[str, Any], i: int, length: int) -> float | None:
    """The row's reward after scaling and normalisation. AReaL adds it to the KL reward at the last
    token but one."""
    if "tot_rewards" not in after or "kl_rewards" not in after or length < 2:
        return None
    return float(after["tot_rewards"][i][length - 2] - after["kl_rewards"][i][length - 2])


def _local(group: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The named tensors. In single-controller mode these are handles. We fetch the tensors of
    copies, so that AReaL's own stay handles."""
    found = {name: group[name] for name in names if group.get(name) is not None}
    remote = sys.modules.get("areal.infra.rpc.rtensor")
    if remote is None or not any(isinstance(v, remote.RTensor) for v in found.values()):
        return found
    return dict(remote.RTensor.localize({name: copy.copy(v) for name, v in found.items()}))


def _copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v.copy() if hasattr(v, "copy") else v for name, v in arrays.items()}
