"""Arrays of a trainer on the host, with one transfer per tensor per batch.

Slicing a GPU tensor row by row costs one synchronisation a row. Adapters therefore call
`on_host` once for a whole batch and slice what comes back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.tokens import detached


def on_host(values: Any) -> Any:
    """A tensor as a NumPy array on the host (or nested lists without NumPy). Anything else as it
    is.

    The result may share memory with a tensor that was already on the host. Read it now, and
    never change it.
    """
    if values is None or not hasattr(values, "detach"):
        return values
    values = detached(values)
    if getattr(values, "is_sparse", False) or getattr(values, "is_nested", False):
        return values.tolist() if not getattr(values, "is_nested", False) else list(values)
    try:
        return values.numpy()
    except (TypeError, RuntimeError):  # bfloat16 and friends, or torch without NumPy
        values = values.float() if values.is_floating_point() else values
    try:
        return values.numpy()
    except (TypeError, RuntimeError):
        return values.tolist()


def batch_on_host(batch: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the named entries that the batch has, each transferred once."""
    return {name: on_host(batch[name]) for name in names if name in batch}


def number(value: Any) -> float | None:
    """A scalar of any framework as a float; None if it is not one number."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        return float(detached(value))
    except (TypeError, ValueError, RuntimeError):
        return None


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a trainer that are single numbers."""
    return {name: value for name, value in values.items() if number(value) is not None}


def same_length(name: str, values: Any, n: int, problems: list[str]) -> Any:
    """`values` if there is one for each of `n` rows. Otherwise None, with the reason in
    `problems`.

    A trainer's parallel lists may differ in length. Such a field is left out, never shifted.
    """
    if values is None:
        return None
    try:
        found = len(values)
    except TypeError:
        problems.append(f"{name}: expected {n} values, found a {type(values).__name__}")
        return None
    if found != n:
        problems.append(f"{name}: expected {n} values, found {found}; left out")
        return None
    return values


def runs(marks: Sequence[Any]) -> list[tuple[int, int, bool]]:
    """Where marks (true or false) follow each other that are the same: begin, end, which."""
    flags = _flags(marks)
    found: list[tuple[int, int, bool]] = []
    begin = 0
    while begin < len(flags):
        end = flags.find(0 if flags[begin] else 1, begin)
        end = len(flags) if end < 0 else end
        found.append((begin, end, bool(flags[begin])))
        begin = end
    return found


def _flags(marks: Any) -> bytes:
    """A byte for each mark: 0 or 1."""
    if hasattr(marks, "astype"):
        return bytes(marks.astype(bool).tobytes())
    if type(marks) is list:
        with contextlib.suppress(TypeError, ValueError):
            flags = bytes(marks)
            if not flags.translate(None, b"\x00\x01"):
                return flags
    return bytes(map(bool, marks))


def listed(values: Any) -> list[Any]:
    """An array as a list, faster than `tolist` where numbers repeat, as in masks and versions:
    that makes each one anew."""
    ends = (values[1:] != values[:-1]).nonzero()[0] + 1
    if len(ends) * 8 > len(values) or not len(values):
        return list(values.tolist())
    found: list[Any] = []
    for end in (*ends.tolist(), len(values)):
        found += [values[end - 1].item()] * (end - len(found))
    return found


def where(marks: Sequence[Any], values: Any) -> list[Any]:
    """The values at true marks, and None elsewhere: trainers put dummies there, such as 0.0."""
    if len(marks) != len(values):
        raise ValueError(f"{len(values)} values for {len(marks)} marks")
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    found: list[Any] = []
    for begin, end, is_true in runs(marks):
        found += values[begin:end] if is_true else [None] * (end - begin)
    return found
