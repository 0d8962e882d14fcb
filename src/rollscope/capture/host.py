"""Copies the tensors of a batch to the host: one transfer per tensor, never one per rollout.

The token arrays of a batch are usually rows of a few large tensors on the GPU. Taking each
row over by itself costs a synchronisation a row. So the storage behind the rows is transferred
once, and the rows are cut out of the copy. torch is only looked at if the caller has loaded it.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from ..model import Message, Rollout, Tokens

_WASTE = 4
"""A storage is not moved as a whole if it is this many times larger than the rows we need."""


def on_host(batch: list[Rollout]) -> list[Rollout]:
    """The same rollouts, with no token array left on another device."""
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None:
        return batch
    taken: dict[Any, int] = {}
    for rollout in batch:
        for message in rollout.messages:
            tokens = getattr(message, "tokens", None)  # it may be a chat message still
            if tokens is not None:
                for _, values in tokens.arrays():
                    if isinstance(values, tensor) and not values.is_cpu:
                        key = _storage(values)
                        taken[key] = taken.get(key, 0) + values.numel()
    if not taken:
        return batch
    copies = _Copies(torch, taken)
    return [_moved(rollout, copies) for rollout in batch]


def _storage(values: Any) -> tuple[int, Any]:
    return values.untyped_storage().data_ptr(), values.dtype


class _Copies:
    """Copies of storages on the host, each made once."""

    def __init__(self, torch: Any, taken: dict[Any, int]) -> None:
        self._torch = torch
        self._taken = taken
        self._made: dict[Any, Any] = {}

    def row(self, values: Any) -> Any:
        """A tensor as it lies in the copy of its storage."""
        if not isinstance(values, self._torch.Tensor) or values.is_cpu:
            return values
        key = _storage(values)
        if key not in self._made:
            self._made[key] = self._copy(values, key)
        copy = self._made[key]
        if copy is None:
            return values.detach().cpu()
        shape, first = values.shape, values.storage_offset()
        if len(shape) == 1 and values.stride() == (1,):
            return copy[first : first + shape[0]]
        return self._torch.as_tensor(copy).as_strided(shape, values.stride(), first)

    def _copy(self, values: Any, key: Any) -> Any:
        """The whole storage, as a NumPy array if NumPy has the type: cutting a row out of an array
        costs a tenth of cutting it out of a tensor."""
        whole = self._torch.empty(0, dtype=values.dtype, device=values.device)
        whole.set_(values.detach().untyped_storage())
        if whole.numel() > _WASTE * self._taken[key]:
            return None
        whole = whole.cpu()
        try:
            return whole.numpy()
        except (TypeError, RuntimeError):  # bfloat16; a torch without NumPy
            return whole


def _moved(rollout: Rollout, copies: _Copies) -> Rollout:
    messages: list[Message] = []
    for message in rollout.messages:
        tokens = getattr(message, "tokens", None)
        if tokens is not None:
            arrays = {name: copies.row(values) for name, values in tokens.arrays()}
            moved = Tokens(arrays.pop("ids", None), arrays.pop("ends", None), arrays)
            message = msgspec.structs.replace(message, tokens=moved)
        messages.append(message)
    return msgspec.structs.replace(rollout, messages=messages)
