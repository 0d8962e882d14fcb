"""What the v1 trainer learns about a rollout later: advantage and fate.

It names its rows `{uid}_{session}_{output}`. From this we make the key of the rollout. A row may
come from a checkpoint of TransferQueue. Then an earlier launch made it, and noted that in its tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from ... import capture
from .._arrays import batch_on_host
from .._seam import Watcher, Watching
from . import ending
from .convert import row_key
from .patching import LOST, seams
from .trainer import MASKED, NAMES, facts_of, score

_rows: ContextVar[Any] = ContextVar("rollscope_verl_rows", default=None)
"""Keys and tags of the batch whose advantages are being computed."""


class _Step:
    """What is known about the batch that is trained on."""

    def __init__(self) -> None:
        self.rewards_are_late = False
        self.masked: set[str] = set()


_step = _Step()


def patch(module: ModuleType) -> None:
    """`PPOTrainer` and the function that computes its advantages."""
    watchers: dict[str, Watcher] = {
        "compute_advantage_for_multi_trajectories": _advantages,
        "PPOTrainer._compute_advantage": _compute_advantage,
        "PPOTrainer._compute_reward_colocate": _reward_colocate,
        "PPOTrainer._update_actor": _update_actor,
    }
    seams.watch(module, watchers, LOST)
    ending.patch(module, "PPOTrainer.fit")


def _advantages() -> Watching:
    result = yield
    late, _step.rewards_are_late = _step.rewards_are_late, False
    _step.masked = _annotate(result, _rows.get(), late)


def _compute_advantage(batch: Any) -> Watching:
    token = _rows.set(batch)
    try:
        yield
    finally:
        _rows.reset(token)


def _reward_colocate() -> Watching:
    yield
    _step.rewards_are_late = True


def _update_actor(self: Any, batch: Any) -> Watching:
    yield
    run = capture.active()
    if run is None:
        return
    for id in _sessions(run, batch.keys, batch.tags):
        if id in _step.masked:
            run.annotate(id, fate="masked", fate_reason=MASKED)
        else:
            run.annotate(id, fate="trained", trained_step=int(self.global_steps))


LAUNCH = "rollscope_launch"
"""The tag of a row that tells the launch it was made in."""


def row_tags(tags: Any = None) -> Watching:
    """`async_kv_batch_put` of TransferQueue, where a worker hands its rows over."""
    run = capture.active()
    if run is not None and tags is not None:
        yield {"tags": [{**tag, LAUNCH: run.launch} for tag in tags]}


def _sessions(
    run: capture.Run, keys: Sequence[str], tags: Sequence[Mapping[str, Any]]
) -> dict[str, list[int]]:
    """Rollout ids of training rows, each with its rows in order; padding rows left out."""
    sessions: dict[str, list[tuple[int, int]]] = {}
    for row, (key, tag) in enumerate(zip(keys, tags, strict=True)):
        uid, session, output = key.rsplit("_", 2)
        if not tag.get("is_padding", False):
            step = tag.get("global_steps")
            name = row_key("train", None if step is None else int(step), uid, int(session))
            id = run.id_of(name, tag.get(LAUNCH))
            sessions.setdefault(id, []).append((int(output), row))
    return {id: [row for _, row in sorted(rows)] for id, rows in sessions.items()}


def _annotate(data: Any, meta: Any, rewards_are_late: bool) -> set[str]:
    """Record advantages. Returns the rollouts that have no token left to train on."""
    run = capture.active()
    if run is None or meta is None:
        return set()
    batch = batch_on_host(data.batch, NAMES)
    masked = set()
    for id, rows in _sessions(run, meta.keys, meta.tags).items():
        tags = [meta.tags[row] for row in rows]
        found = [
            facts_of(batch, row, tag.get("prompt_len"), int(tag["response_len"]))
            for row, tag in zip(rows, tags, strict=True)
        ]
        streams = _joined([facts["streams"] for facts in found])
        reward = score(batch, rows[-1]) if rewards_are_late else None
        advantage = found[-1].get("advantage")
        run.annotate(id, advantage=advantage, reward=reward, streams=streams)
        if all("advantage" not in facts for facts in found):
            masked.add(id)
    return masked


def _joined(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The streams of a rollout's rows, one after the other, if every row has them."""
    import numpy as np

    names = set.intersection(*(set(piece) for piece in pieces)) if pieces else set()
    concatenate: Any = np.ma.concatenate
    return {name: concatenate([piece[name] for piece in pieces]) for name in sorted(names)}


_reasons: ContextVar[Mapping[str, str] | None] = ContextVar("rollscope_verl_why", default=None)
"""Why groups are thrown away, by uid, while they are."""


def evicted(self: Any, eviction_reasons: Any) -> Watching:
    """`ReplayBuffer._evict_terminal_groups`: groups that are too old, without signal, failed."""
    token = _reasons.set(_why(self, eviction_reasons))
    try:
        yield
    finally:
        _reasons.reset(token)


def cleared(self: Any, partition_id: str, uids: set[str]) -> Watching:
    """`ReplayBuffer._clear_groups`: these groups, and those beyond the batch size."""
    run = capture.active()
    if run is None or partition_id == "val":
        return
    rows = self.partitions[partition_id]
    why = _reasons.get() or {}
    for uid in uids:
        mine = {k: tag for k, tag in rows.items() if k.split("_")[0] == uid}
        reason = why.get(uid, "surplus: more groups than the batch takes")
        for id in _sessions(run, list(mine), list(mine.values())):
            run.annotate(id, fate="dropped", fate_reason=reason)
    yield


def _why(buffer: Any, eviction_reasons: Any) -> dict[str, str]:
    """verl's reasons by uid; where there are several, that it is too old comes first."""
    stale, filtered, failed = (set(uids) for uids in eviction_reasons[:3])
    metric = getattr(buffer, "filter_groups_metric", None)
    why = dict.fromkeys(failed, "failed group: one of its rollouts failed")
    why |= dict.fromkeys(filtered, f"filter_groups: same {metric} in the whole group")
    return why | dict.fromkeys(stale, "off-policy: too old")
