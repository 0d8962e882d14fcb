"""What the legacy trainer, and those built on it, learn about a rollout later.

They have no name for a row, and they reorder their batches for balance. So each row is known by
its uid and its tokens. These are noted when the batch comes back from the workers, in the
trainer's own process, or, with `fully_async_policy`, when it is taken out of the queue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from ... import capture
from .._arrays import batch_on_host
from .._seam import Watcher, Watching
from . import ending
from .convert import row_key, step_of
from .patching import LOST, seams
from .trainer import MASKED, NAMES, annotate_all, facts_of, score

_ROW = ("prompts", "responses")
_REMEMBERED = 2**17
"""Rows that are known, some 40 MB: `one_step_off_policy` generates ahead of the training."""


class _KnownRows:
    """The rows that came back from the workers, so that they are recognised later."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, bytes], list[str]] = {}
        self.rewards_are_late = False

    def note(self, rows: Iterable[tuple[Any, str, Mapping[str, Any], int]]) -> None:
        """A batch, or a group: uid, key, and where the tokens are (arrays and a number)."""
        keys: dict[tuple[str, bytes], list[str]] = {}
        for uid, key, batch, i in rows:
            keys.setdefault((str(uid), _digest(batch, i)), []).append(key)
        for name, mine in keys.items():
            self._keys.pop(name, None)  # so that the oldest stay first
            self._keys[name] = mine
        while len(self._keys) > max(_REMEMBERED, len(keys)):
            del self._keys[next(iter(self._keys))]

    def find(self, data: Any, batch: Mapping[str, Any]) -> list[str | None]:
        """The key of each row. Equal rows of one group are taken in order; they are the same."""
        left: dict[tuple[str, bytes], list[str]] = {}
        found: list[str | None] = []
        for i, uid in enumerate(data.non_tensor_batch.get("uid", ())):
            name = (str(uid), _digest(batch, i))
            keys = left.setdefault(name, list(self._keys.get(name, ())))
            found.append(keys.pop(0) if keys else None)
        return found


def _digest(batch: Mapping[str, Any], row: int) -> bytes:
    data = batch["prompts"][row].tobytes() + batch["responses"][row].tobytes()
    return hashlib.blake2b(data, digest_size=16).digest()


_known = _KnownRows()


# -- advantages and updates ------------------------------------------------------------


def patch(module: ModuleType) -> None:
    """`RayPPOTrainer` and the function that computes its advantages."""
    patch_class(module, "RayPPOTrainer.")
    patch_advantage(module)


def patch_class(owner: Any, prefix: str = "") -> None:
    """The methods of a trainer, and of classes that inherit them."""
    watchers: dict[str, Watcher] = {
        prefix + "_update_actor": _update_actor,
        prefix + "_compute_reward_colocate": _reward_colocate,
    }
    seams.watch(owner, watchers, LOST)
    ending.patch(owner, prefix + "fit")


def patch_advantage(module: ModuleType) -> None:
    """`compute_advantage`, in every module that a trainer calls it from."""
    seams.watch(module, {"compute_advantage": _advantage}, LOST)


def _advantage() -> Watching:
    _annotate((yield))


def _reward_colocate() -> Watching:
    yield
    _known.rewards_are_late = True


def _update_actor(self: Any, batch: Any) -> Watching:
    yield
    found = batch_on_host(batch.batch, (*_ROW, "response_mask"))
    left = [bool(mask.any()) for mask in found["response_mask"]]
    keys = list(zip(_known.find(batch, found), left, strict=True))
    trained = [key for key, is_left in keys if key and is_left]
    annotate_all(trained, fate="trained", trained_step=_trained_step(self))
    masked = [key for key, is_left in keys if key and not is_left]
    annotate_all(masked, fate="masked", fate_reason=MASKED)


def _trained_step(trainer: Any) -> int:
    """The step of verl's own metrics of this update. `fully_async_policy` counts versions of
    the weights; what is trained now becomes the next version."""
    version = getattr(trainer, "current_param_version", None)
    return int(trainer.global_steps) if version is None else int(version) + 1


def _annotate(data: Any) -> None:
    run = capture.active()
    if run is None or "responses" not in data.batch:  # the v1 trainer calls this function too
        return
    batch = batch_on_host(data.batch, NAMES)
    late, _known.rewards_are_late = _known.rewards_are_late, False
    width = batch["prompts"].shape[1]
    unknown = 0
    for row, key in enumerate(_known.find(data, batch)):
        if key is None:
            unknown += 1
            continue
        attention = batch["attention_mask"][row]
        prompt, length = int(attention[:width].sum()), int(attention[width:].sum())
        facts = facts_of(batch, row, prompt, length)
        run.annotate(key=key, reward=score(batch, row) if late else None, **facts)
    if unknown:
        capture.report("adapter verl", "rows without a rollout: their advantages are not recorded")


# -- where batches come from -----------------------------------------------------------


def patch_manager(module: ModuleType) -> None:
    """`AgentLoopManager.generate_sequences`: the trainer's batch, before it is sorted."""
    seams.wrap(module, "AgentLoopManager.generate_sequences", _sequences, _below_auto_await)


def _below_auto_await(method: Any) -> Any:
    """verl's `auto_await` looks at its caller, so it has to stay the outermost."""
    from verl.utils.ray_utils import auto_await

    return auto_await(seams.watched(method.__wrapped__, _sequences, "generate_sequences"))


def _sequences(self: Any, prompts: Any) -> Watching:
    output = yield
    if prompts.meta_info.get("validate", False):
        _drop_padding(self, prompts)
    else:
        _note(self, prompts, output)


def _note(manager: Any, prompts: Any, output: Any) -> None:
    uids, rows = (prompts.non_tensor_batch.get(name) for name in ("uid", "priority"))
    if uids is None or rows is None or len(output) != len(uids):
        return
    step = step_of(manager.config, prompts.meta_info.get("global_steps"))
    batch = batch_on_host(output.batch, _ROW)
    _known.note(
        (uid, row_key("train", step, uid, int(rows[i])), batch, i) for i, uid in enumerate(uids)
    )


def _drop_padding(manager: Any, prompts: Any) -> None:
    """verl fills a validation batch up with copies of its first rows, and drops them later."""
    uids, rows = (prompts.non_tensor_batch.get(name) for name in ("uid", "priority"))
    if uids is None or rows is None:
        return
    step = step_of(manager.config, prompts.meta_info.get("global_steps"))
    n = int(manager.rollout_config.val_kwargs.n)
    seen: dict[str, int] = {}
    copies = []
    for uid, row in zip(uids, rows, strict=True):
        seen[uid] = seen.get(uid, 0) + 1
        if seen[uid] > n:
            copies.append(row_key("eval", step, uid, int(row)))
    annotate_all(copies, fate="dropped", fate_reason="padding: a copy that verl throws away")


def addition_process(output: Any) -> Watching:
    """`fully_async_policy`: its trainer puts batches together out of a queue, a group each.

    This function gets every group on its way into a batch. We cannot watch the trainer's own
    module: Ray sends its class by value, and the methods there have their own names.
    """
    _known.note(_group_rows(output))
    yield


def _group_rows(group: Any) -> Iterable[tuple[Any, str, Mapping[str, Any], int]]:
    """The rows of one group. One worker made them in one go, so their order is their place."""
    batch = batch_on_host(group.batch, _ROW)
    for i, uid in enumerate(group.non_tensor_batch["uid"]):
        yield uid, row_key("train", None, uid, i), batch, i
