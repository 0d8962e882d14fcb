"""What verl's trainers learn about a rollout later: advantage, fate, and the step's metrics.

The v1 trainer names its rows `{uid}_{session}_{output}`, which leads to the rollout's key. The
legacy trainer has no name for a row and sorts its batch anew for balance, so each row is
known by its uid and its tokens, noted when the batch came back from the workers.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from ... import capture
from ...capture import guard
from .._arrays import batch_on_host
from .convert import row_key
from .patching import replace

_STREAMS = {"old_log_probs": "train_logprob", "ref_log_prob": "ref_logprob"}


# -- late facts from rows --------------------------------------------------------------


def facts_of(batch: Mapping[str, Any], row: int, prompt: int | None, length: int) -> dict[str, Any]:
    """Advantage and token streams of one row; `prompt` tokens come before the response.

    The advantage of a rollout is that of its trained tokens, if they all have the same one
    (GRPO and its kin), else their mean, with the values themselves as a stream.
    """
    mask = batch["response_mask"][row][:length]
    chosen = mask > 0
    facts: dict[str, Any] = {"streams": {}}
    advantages = batch.get("advantages")
    if advantages is not None and chosen.any():
        values = advantages[row][:length]
        trained = values[chosen]
        facts["advantage"] = float(trained[0] if _is_constant(trained) else trained.mean())
        if not _is_constant(trained):
            facts["streams"]["advantage"] = _padded(values, chosen, prompt)
    for name, stream in _STREAMS.items():
        if name in batch:
            facts["streams"][stream] = _padded(batch[name][row][:length], chosen, prompt)
    if prompt is None:
        facts["streams"] = {}
    return facts


def _is_constant(values: Any) -> bool:
    return bool((values == values[0]).all())


def _padded(values: Any, chosen: Any, prompt: int | None) -> list[float | None]:
    known = [float(v) if c else None for v, c in zip(values, chosen, strict=True)]
    return [None] * (prompt or 0) + known


_NAMES = (
    "advantages",
    "response_mask",
    "old_log_probs",
    "ref_log_prob",
    "token_level_scores",
    "attention_mask",
    "prompts",
    "responses",
)


# -- the v1 trainer --------------------------------------------------------------------

_rows: ContextVar[Any] = ContextVar("rollscope_verl_rows", default=None)
"""Keys and tags of the batch whose advantages are being computed."""


def patch_v1(module: ModuleType) -> None:
    """`PPOTrainer` and the function that computes its advantages."""
    trainer = module.PPOTrainer
    compute, advantages = (
        module.compute_advantage_for_multi_trajectories,
        trainer._compute_advantage,
    )
    update, colocate = trainer._update_actor, trainer._compute_reward_colocate
    state = {"rewards_are_late": False}

    @functools.wraps(compute)
    def compute_advantage_for_multi_trajectories(data: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute(data, *args, **kwargs)
        with guard("adapter verl: advantages"):
            _annotate_v1(result, _rows.get(), state.pop("rewards_are_late", False))
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
            sessions = _sessions(batch.keys, batch.tags)
            _annotate_all(sessions, fate="trained", trained_step=int(self.global_steps))
        return result

    replace(module, compute.__name__, compute_advantage_for_multi_trajectories)
    replace(trainer, "_compute_advantage", _compute_advantage)
    replace(trainer, "_compute_reward_colocate", _compute_reward_colocate)
    replace(trainer, "_update_actor", _update_actor)


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


def _annotate_v1(data: Any, meta: Any, rewards_are_late: bool) -> None:
    run = capture.active()
    if run is None or meta is None:
        return
    batch = batch_on_host(data.batch, _NAMES)
    for key, rows in _sessions(meta.keys, meta.tags).items():
        tags = [meta.tags[row] for row in rows]
        found = [
            facts_of(batch, row, tag.get("prompt_len"), int(tag["response_len"]))
            for row, tag in zip(rows, tags, strict=True)
        ]
        streams = _joined([facts["streams"] for facts in found])
        reward = _score(batch, rows[-1]) if rewards_are_late else None
        advantage = found[-1].get("advantage")
        run.annotate(key=key, advantage=advantage, reward=reward, streams=streams)


def _joined(pieces: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The streams of a rollout's rows, one behind the other, where every row has them."""
    names = set.intersection(*(set(piece) for piece in pieces)) if pieces else set()
    return {name: [v for piece in pieces for v in piece[name]] for name in sorted(names)}


def _score(batch: Mapping[str, Any], row: int) -> float | None:
    scores = batch.get("token_level_scores")
    return None if scores is None else float(scores[row].sum())


def patch_replay_buffer(module: ModuleType) -> None:
    """Groups that the replay buffer throws away: too old, without signal, failed, surplus."""
    buffer = module.ReplayBuffer
    evict, clear = buffer._evict_terminal_groups, buffer._clear_groups
    reasons: ContextVar[dict[str, str] | None] = ContextVar("reasons", default=None)

    @functools.wraps(evict)
    def _evict_terminal_groups(
        self: Any, global_steps: int, partition_id: str, eviction_reasons: Any
    ) -> Any:
        stale, filtered, failed = (set(uids) for uids in eviction_reasons[:3])
        metric = getattr(self, "filter_groups_metric", None)
        why = dict.fromkeys(failed, "failed group")
        why |= dict.fromkeys(filtered, f"filter_groups: same {metric} in the whole group")
        why |= dict.fromkeys(stale, "off-policy: too old")
        token = reasons.set(why)
        try:
            return evict(self, global_steps, partition_id, eviction_reasons)
        finally:
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
                _annotate_all(dropped, fate="dropped", fate_reason=reason)
        return clear(self, partition_id, uids)

    replace(buffer, "_evict_terminal_groups", _evict_terminal_groups)
    replace(buffer, "_clear_groups", _clear_groups)


def _annotate_all(keys: Iterable[str], **facts: Any) -> None:
    run = capture.active()
    if run is not None:
        for key in keys:
            run.annotate(key=key, **facts)


# -- the legacy trainer ----------------------------------------------------------------


class _Batch:
    """The rows that came back from the workers, so that they are known again later."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, bytes], list[str]] = {}
        self.rewards_are_late = False

    def note(self, prompts: Any, output: Any) -> None:
        uids = prompts.non_tensor_batch.get("uid")
        rows = prompts.non_tensor_batch.get("priority")
        step = prompts.meta_info.get("global_steps")
        self.keys = {}
        if uids is None or rows is None or len(output) != len(uids):
            return
        batch = batch_on_host(output.batch, ("prompts", "responses"))
        for i, uid in enumerate(uids):
            key = row_key("train", step, uid, int(rows[i]))
            self.keys.setdefault((str(uid), _digest(batch, i)), []).append(key)

    def find(self, data: Any, batch: Mapping[str, Any]) -> list[str | None]:
        """The key of each row. Equal rows of one group are taken in order: they are equal."""
        left = {name: list(keys) for name, keys in self.keys.items()}
        found: list[str | None] = []
        for i, uid in enumerate(data.non_tensor_batch.get("uid", ())):
            keys = left.get((str(uid), _digest(batch, i)))
            found.append(keys.pop(0) if keys else None)
        return found


def _digest(batch: Mapping[str, Any], row: int) -> bytes:
    data = batch["prompts"][row].tobytes() + batch["responses"][row].tobytes()
    return hashlib.blake2b(data, digest_size=16).digest()


def patch_legacy(module: ModuleType) -> None:
    """`RayPPOTrainer` and the function that computes its advantages."""
    trainer, compute = module.RayPPOTrainer, module.compute_advantage
    update, colocate = trainer._update_actor, trainer._compute_reward_colocate

    @functools.wraps(compute)
    def compute_advantage(data: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute(data, *args, **kwargs)
        with guard("adapter verl: advantages"):
            _annotate_legacy(result)
        return result

    @functools.wraps(colocate)
    def _compute_reward_colocate(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = colocate(self, *args, **kwargs)
        _batch.rewards_are_late = True
        return result

    @functools.wraps(update)
    def _update_actor(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, batch, *args, **kwargs)
        with guard("adapter verl: trained rows"):
            keys = _batch.find(batch, batch_on_host(batch.batch, ("prompts", "responses")))
            known = [key for key in keys if key is not None]
            _annotate_all(known, fate="trained", trained_step=int(self.global_steps))
        return result

    replace(module, compute.__name__, compute_advantage)
    replace(trainer, "_compute_reward_colocate", _compute_reward_colocate)
    replace(trainer, "_update_actor", _update_actor)


_batch = _Batch()


def patch_manager(module: ModuleType) -> None:
    """`AgentLoopManager.generate_sequences`: the legacy trainer's batch, before it is sorted."""
    from verl.utils.ray_utils import auto_await

    manager = module.AgentLoopManager
    inner = manager.generate_sequences.__wrapped__  # below verl's auto_await

    @functools.wraps(inner)
    async def generate_sequences(self: Any, prompts: Any) -> Any:
        output = await inner(self, prompts)
        with guard("adapter verl: rows of the batch"):
            if prompts.meta_info.get("validate", False):
                _drop_padding(prompts, int(self.rollout_config.val_kwargs.n))
            else:
                _batch.note(prompts, output)
        return output

    replace(manager, "generate_sequences", auto_await(generate_sequences))


def _drop_padding(prompts: Any, n: int) -> None:
    """verl fills a validation batch up with copies of its first rows, and throws them away."""
    uids, rows = (prompts.non_tensor_batch.get(name) for name in ("uid", "priority"))
    if uids is None or rows is None:
        return
    seen: dict[str, int] = {}
    copies = []
    for uid, row in zip(uids, rows, strict=True):
        seen[uid] = seen.get(uid, 0) + 1
        if seen[uid] > n:
            step = prompts.meta_info.get("global_steps")
            copies.append(row_key("eval", step, uid, int(row)))
    _annotate_all(copies, fate="dropped", fate_reason="padding: a copy that verl throws away")


def _annotate_legacy(data: Any) -> None:
    run = capture.active()
    if run is None or "responses" not in data.batch:  # the v1 trainer calls this function too
        return
    batch = batch_on_host(data.batch, _NAMES)
    late, _batch.rewards_are_late = _batch.rewards_are_late, False
    width = batch["prompts"].shape[1]
    unknown = 0
    for row, key in enumerate(_batch.find(data, batch)):
        if key is None:
            unknown += 1
            continue
        attention = batch["attention_mask"][row]
        prompt, length = int(attention[:width].sum()), int(attention[width:].sum())
        facts = facts_of(batch, row, prompt, length)
        run.annotate(key=key, reward=_score(batch, row) if late else None, **facts)
    if unknown:
        capture.report("adapter verl", "rows without a rollout: their advantages are not recorded")


# -- metrics ---------------------------------------------------------------------------


def patch_tracking(module: ModuleType) -> None:
    """`Tracking.log`: the trainer's own numbers of each step."""
    log: Callable[..., Any] = module.Tracking.log

    @functools.wraps(log)
    def traced_log(self: Any, data: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
        with guard("adapter verl: metrics"):
            run = capture.active()
            if run is not None:
                run.metrics(int(step), {k: v for k, v in data.items() if _is_scalar(v)})
        return log(self, data, step, *args, **kwargs)

    replace(module.Tracking, "log", traced_log)


def _is_scalar(value: Any) -> bool:
    size = getattr(value, "size", 1)
    numel = getattr(value, "numel", None)
    count = numel() if callable(numel) else size() if callable(size) else size
    return isinstance(value, (int, float)) or (hasattr(value, "item") and count == 1)
