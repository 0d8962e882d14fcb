"""Rows of AReaL's padded tensors: cut to their length, named, and rid of their dummies. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Message
from .._arrays import batch_on_host, listed, where

_TENSORS = (
    "input_ids",
    "attention_mask",
    "loss_mask",
    "logprobs",
    "versions",
    "turn_ids",
    "rewards",
    "original_rewards",
)


def digest(ids: Any, versions: Any = None, logprobs: Any = None) -> str:
    """A name for a training row, made of what no other row shares: tokens, the versions of the
    weights that drew them, and their exact log probabilities. Any process that holds the row
    can compute it; AReaL gives rows no id of their own."""
    import numpy

    made = hashlib.blake2b(digest_size=15)
    for values, kind in ((ids, "<i4"), (versions, "<i4"), (logprobs, "<f4")):
        made.update(b"-" if values is None else numpy.asarray(values, dtype=kind).tobytes())
    return made.hexdigest()


def rows_of(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a dict of padded tensors, each cut to its own length; one copy per tensor."""
    host = batch_on_host(batch, _TENSORS)
    ids = host["input_ids"]
    mask = host.get("attention_mask")
    rows = []
    for i in range(len(ids)):
        length = int(mask[i].sum()) if mask is not None else len(ids[i])
        rows.append(
            {
                name: values[i] if getattr(values, "ndim", 1) == 1 else values[i][:length]
                for name, values in host.items()
                if values is not None and len(values) == len(ids) and name != "attention_mask"
            }
        )
    return rows


def written(wrote: Sequence[Any] | None, values: Any) -> list[Any] | None:
    """A stream, without the dummies (0.0) on tokens that the policy did not write."""
    if values is None or wrote is None:
        return None if values is None else list(values.tolist())
    return where(wrote, values)


def versions(values: Any) -> list[Any] | None:
    return None if values is None else where(values >= 0, listed(values))


def first_version(messages: Sequence[Message]) -> int | None:
    """The version of the weights that drew the first token."""
    for message in messages:
        for version in (message.tokens.version if message.tokens is not None else None) or ():
            if version is not None:
                return int(version)
    return None
