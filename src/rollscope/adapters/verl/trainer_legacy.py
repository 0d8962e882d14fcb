"""What the legacy trainer, and those built on it, learn about a rollout later.

They have no name for a row, and they reorder their batches for balance. So each row is known by
its uid and its tokens. These are noted when the batch comes back from the workers, in the
trainer's own process, or, with `fully_async_policy`, when it is taken out of the queue.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from ... import capture
from .._arrays import batch_on_host
from .._seam import Watcher, Watching
from . import ending
from .convert import row_key, step_of
from .patching import LOST, seams
from .trainer import MASKED, NAMES, annotate_all, facts_of, score

_ROW = ("prompts", "responses", "rm_scores", "token_level_scores")
_REMEMBERED = 2**17
"""Rows that are known, some 40 MB: `one_step_off_policy` generates ahead of the training."""


class _Equal(NamedTuple):
    """Rollouts that a batch may mean, and its rows that may mean them: mostly one and one.

    Siblings may be equal, to the reward. The trainer sorts its rows, so nobody can tell which is
    which.
    """

    keys: list[str]
    rows: list[int]


class _KnownRows:
    """The rows that came back from the workers, so that they are recognised later."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, bytes], list[tuple[str, bytes]]] = {}
        """By uid and tokens: the keys, each with its reward."""
        self.rewards_are_late = False

    def note(self, rows: Iterable[tuple[Any, str, Mapping[str, Any], int]]) -> None:
        """A batch, or a group: uid, key, and where the tokens are (arrays and a number)."""
        keys: dict[tuple[str, bytes], list[tuple[str, bytes]]] = {}
        for uid, key, batch, i in rows:
            name = str(uid), _digest(batch, i)
            keys.setdefault(name, []).append((key, _reward(batch, i)))
        for name, mine in keys.items():
            self._keys.pop(name, None)  # so that the oldest stay first
            self._keys[name] = mine
        while len(self._keys) > max(_REMEMBERED, len(keys)):
            del self._keys[next(iter(self._keys))]

    def find(self, data: Any, batch: Mapping[str, Any]) -> list[_Equal]:
        """The rollouts of a batch. Rewards tell siblings with the same tokens apart."""
        rows: dict[tuple[str, bytes], list[int]] = {}
        for i, uid in enumerate(data.non_tensor_batch.get("uid", ())):
            rows.setdefault((str(uid), _digest(batch, i)), []).append(i)
        found = []
        for name, mine in rows.items():
            known = self._keys.get(name, [])
            rewards = {i: _reward(batch, i) for i in mine}
            if b"" in rewards.values() or any(reward == b"" for _, reward in known):
                found.append(_Equal([key for key, _ in known], mine))
                continue
            for reward in dict.fromkeys(rewards.values()):
                keys = [key for key, its in known if its == reward or len(known) == 1]
                found.append(_Equal(keys, [i for i in mine if rewards[i] == reward]))
        return found


def _digest(batch: Mapping[str, Any], row: int) -> bytes:
    data = batch["prompts"][row].tobytes() + batch["responses"][row].tobytes()
    return hashlib.blake2b(data, digest_size=16).digest()


def _reward(batch: Mapping[str, Any], row: int) -> bytes:
    """The reward of a row, as something that can be compared. Empty: it is not known yet."""
    scores = batch.get("rm_scores", batch.get("token_level_scores"))
    return b"" if scores is None else struct.pack("<d", scores[row].sum())


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
    step = _trained_step(self)
    for keys, rows in _known.find(batch, found):
        left = {bool(found["response_mask"][row].any()) for row in rows}
        if len(keys) != len(rows) or len(left) > 1:
            continue  # some of several equal rollouts: nobody knows which
        if left == {True}:
            annotate_all(keys, fate="trained", trained_step=step)
        else:
            annotate_all(keys, fate="masked", fate_reason=MASKED)


def _trained_step(trainer: Any) -> int:
    """The step of verl's own metrics of this update. `fully_async_policy` counts versions of
    the weights; what is trained now becomes the next version."""
    version = getattr(trainer, "current_param_version", None)
    return int(trainer.global_steps) if version is None else int(version) + 1


def _annotate(data: Any) -> None:
    run = capture.active()
    if run is None or "responses" not in data.batch:  # the v1 trainer calls this function too
        return
    batch = batch_on_host(data.batch, (*NAMES, *_ROW))
    late, _known.rewards_are_late = _known.rewards_are_late, False
    width = batch["prompts"].shape[1]
    unknown = 0
    for keys, rows in _known.find(data, batch):
        if len(keys) != len(rows):
            unknown += len(rows)
            continue
        facts = _agreed([_facts(batch, row, width, late) for row in rows])
        for key in keys:
            run.annotate(key=key, **facts)
    if unknown:
        capture.report("adapter verl", "rows without a rollout: their advantages are not recorded")


def _facts(batch: Mapping[str, Any], row: int, width: int, late: bool) -> dict[str, Any]:
    attention = batch["attention_mask"][row]
    prompt, length = int(attention[:width].sum()), int(attention[width:].sum())
    facts = facts_of(batch, row, prompt, length)
    return {**facts, "reward": score(batch, row) if late else None}


def _agreed(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is true of each of several equal rows: a field that differs is missing."""
    first, *others = facts
    streams = {
        name: values
        for name, values in first["streams"].items()
        if all(
            name in other["streams"] and other["streams"][name].tobytes() == values.tobytes()
            for other in others
        )
    }
    agreed = {
        name: value
        for name, value in first.items()
        if name != "streams" and all(other.get(name) == value for other in others)
    }
    return {**agreed, "streams": streams}


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
    sampled = prompts.non_tensor_batch.get("__do_sample__")  # REMAX does not train on the others
    _known.note(
        (uid, row_key("train", step, uid, int(rows[i])), batch, i)
        for i, uid in enumerate(uids)
        if sampled is None or sampled[i]
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
