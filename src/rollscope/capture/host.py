"""Tensors of a batch brought to the host, one transfer for each, never one for each rollout.

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
"""A storage more than so many times larger than what is taken of it is not moved as a whole."""


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
        values = values.detach()
        key = _storage(values)
        if key not in self._made:
            whole = self._torch.empty(0, dtype=values.dtype, device=values.device)
            whole.set_(values.untyped_storage())
            is_worth_it = whole.numel() <= _WASTE * self._taken[key]
            self._made[key] = whole.cpu() if is_worth_it else None
        copy = self._made[key]
        if copy is None:
            return values.cpu()
        return copy.as_strided(values.shape, values.stride(), values.storage_offset())


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
