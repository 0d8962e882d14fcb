"""What the v1 trainer learns about a rollout later: advantage and fate.

It names its rows `{uid}_{session}_{output}`, which leads to the rollout's key.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from ... import capture
from ...capture import guard
from .._arrays import batch_on_host
from . import ending
from .convert import row_key
from .patching import replace
from .trainer import MASKED, NAMES, annotate_all, facts_of, score

_rows: ContextVar[Any] = ContextVar("rollscope_verl_rows", default=None)
"""Keys and tags of the batch whose advantages are being computed."""


def patch(module: ModuleType) -> None:
    """`PPOTrainer` and the function that computes its advantages."""
    trainer = module.PPOTrainer
    compute, advantages = (
        module.compute_advantage_for_multi_trajectories,
        trainer._compute_advantage,
    )
    update, colocate = trainer._update_actor, trainer._compute_reward_colocate
    state: dict[str, Any] = {"rewards_are_late": False, "masked": set()}

    @functools.wraps(compute)
    def compute_advantage_for_multi_trajectories(data: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute(data, *args, **kwargs)
        with guard("adapter verl: advantages"):
            state["masked"] = _annotate(result, _rows.get(), state.pop("rewards_are_late", False))
        return result

    @functools.wraps(advantages)
    def _compute_advantage(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        token = _rows.set(batch)
        try:
            return advantages(self, batch, *args, **kwargs)
        finally:
            _rows.reset(token)

    @functools.wraps(colocate)
    def _compute_reward_colocate(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = colocate(self, *args, **kwargs)
        state["rewards_are_late"] = True
        return result

    @functools.wraps(update)
    def _update_actor(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, batch, *args, **kwargs)
        with guard("adapter verl: trained rows"):
            keys = set(_sessions(batch.keys, batch.tags))
            masked = keys & state["masked"]
            annotate_all(keys - masked, fate="trained", trained_step=int(self.global_steps))
            annotate_all(masked, fate="masked", fate_reason=MASKED)
        return result

    replace(module, compute.__name__, compute_advantage_for_multi_trajectories)
    replace(trainer, "_compute_advantage", _compute_advantage)
    replace(trainer, "_compute_reward_colocate", _compute_reward_colocate)
    replace(trainer, "_update_actor", _update_actor)
    ending.patch(trainer)


def _sessions(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Rollout keys of training rows, each with its rows in order; padding rows left out."""
    sessions: dict[str, list[tuple[int, int]]] = {}
    for row, (key, tag) in enumerate(zip(keys, tags, strict=True)):
        uid, session, output = key.rsplit("_", 2)
        if not tag.get("is_padding", False):
            step = tag.get("global_steps")
            name = row_key("train", None if step is None else int(step), uid, int(session))
            sessions.setdefault(name, []).append((int(output), row))
    return {name: [row for _, row in sorted(rows)] for name, rows in sessions.items()}


def _annotate(data: Any, meta: Any, rewards_are_late: bool) -> set[str]:
    """Write advantages down. Returns the rollouts of which no token is left to train on."""
    run = capture.active()
    if run is None or meta is None:
        return set()
    batch = batch_on_host(data.batch, NAMES)
    masked = set()
    for key, rows in _sessions(meta.keys, meta.tags).items():
        tags = [meta.tags[row] for row in rows]
        found = [
            facts_of(batch, row, tag.get("prompt_len"), int(tag["response_len"]))
            for row, tag in zip(rows, tags, strict=True)
        ]
        streams = _joined([facts["streams"] for facts in found])
        reward = score(batch, rows[-1]) if rewards_are_late else None
        advantage = found[-1].get("advantage")
        run.annotate(key=key, advantage=advantage, reward=reward, streams=streams)
        if all("advantage" not in facts for facts in found):
            masked.add(key)
    return masked


def _joined(pieces: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The streams of a rollout's rows, one behind the other, where every row has them."""
    names = set.intersection(*(set(piece) for piece in pieces)) if pieces else set()
    return {name: [v for piece in pieces for v in piece[name]] for name in sorted(names)}


def patch_replay_buffer(module: ModuleType) -> None:
    """Groups that the replay buffer throws away: too old, without signal, failed, surplus."""
    buffer = module.ReplayBuffer
    evict, clear = buffer._evict_terminal_groups, buffer._clear_groups
    reasons: ContextVar[dict[str, str] | None] = ContextVar("reasons", default=None)

    @functools.wraps(evict)
    def _evict_terminal_groups(
        self: Any, global_steps: int, partition_id: str, eviction_reasons: Any
    ) -> Any:
        token = None
        with guard("adapter verl: dropped groups"):
            token = reasons.set(_why(self, eviction_reasons))
        try:
            return evict(self, global_steps, partition_id, eviction_reasons)
        finally:
            if token is not None:
                reasons.reset(token)

    @functools.wraps(clear)
    def _clear_groups(self: Any, partition_id: str, uids: set[str]) -> Any:
        with guard("adapter verl: dropped groups"):
            rows = {k: t for k, t in self.partitions[partition_id].items() if partition_id != "val"}
            why = reasons.get() or {}
            for uid in uids:
                mine = {k: tag for k, tag in rows.items() if k.split("_")[0] == uid}
                dropped = _sessions(list(mine), list(mine.values()))
                reason = why.get(uid, "surplus: more groups than the batch takes")
                annotate_all(dropped, fate="dropped", fate_reason=reason)
        return clear(self, partition_id, uids)

    replace(buffer, "_evict_terminal_groups", _evict_terminal_groups)
    replace(buffer, "_clear_groups", _clear_groups)


def _why(buffer: Any, eviction_reasons: Any) -> dict[str, str]:
    """verl's reasons by uid; where there are several, that it is too old comes first."""
    stale, filtered, failed = (set(uids) for uids in eviction_reasons[:3])
    metric = getattr(buffer, "filter_groups_metric", None)
    why = dict.fromkeys(failed, "failed group: one of its rollouts failed")
    why |= dict.fromkeys(filtered, f"filter_groups: same {metric} in the whole group")
    return why | dict.fromkeys(stale, "off-policy: too old")
