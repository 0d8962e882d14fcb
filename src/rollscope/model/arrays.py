"""Token arrays on their way into a line: copied where the trainer calls, put into text later, on
the background thread."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import orjson

from .normalise import non_finite
from .tokens import KNOWN_STREAMS, detached, is_int, to_list

Arrays = dict[str, Any]
"""Copied arrays by name. One named "" stands alone; others make an object."""


def frozen(values: Any) -> Any:
    """A cheap copy that the trainer can no longer change: a tuple, or an array's bytes."""
    np = sys.modules.get("numpy")
    if np is not None and type(values) is np.ndarray:
        return values.copy()
    if type(values) is list:
        return tuple(values)
    if type(values) is tuple or isinstance(values, (array, bytes)):
        return values if type(values) is tuple else values[:]
    if np is not None and hasattr(values, "numpy"):
        copy = _tensor_copy(values)
        if copy is not None:
            return copy
    if np is not None and hasattr(values, "__array__"):
        try:
            return np.array(values)  # always a copy
        except (TypeError, ValueError, RuntimeError):
            pass  # on a device that it will not leave by itself
    if hasattr(values, "tolist"):
        return tuple(values.tolist())
    if np is not None and hasattr(values, "__dlpack__"):
        return np.from_dlpack(values).copy()
    return tuple(values)


def _tensor_copy(tensor: Any) -> Any:
    """A tensor as an array: as it is; else off its graph and its device; else (bfloat16) as
    float32. None if it cannot be had so."""
    for ready in (None, detached, lambda t: detached(t).float()):
        try:
            return (tensor if ready is None else ready(tensor)).numpy().copy()
        except (TypeError, RuntimeError, AttributeError):
            continue
    return None


def nbytes(values: Any) -> int:
    if type(values) is tuple:
        return 8 * len(values)
    size = getattr(values, "nbytes", None)
    return int(size) if size is not None else 8 * len(values)


def arrays_json(arrays: Arrays, problems: list[str] | None) -> bytes:
    known: list[bytes] = []
    others: list[bytes] = []
    for name, values in arrays.items():
        try:
            body = array_json(values, is_int(name))
        except Exception as error:
            if problems is not None:
                where = f"tokens.{name}" if name else "stream"
                problems.append(
                    f"{where}: expected numbers, found {values!r:.60} ({error}); left out"
                )
            body = b"null"
        if name == "":
            return body
        if body != b"null":
            item = orjson.dumps(name) + b":" + body
            (known if name in _COLUMNS else others).append(item)
    if others:
        known.append(b'"streams":{' + b",".join(others) + b"}")
    return b"{" + b",".join(known) + b"}"


_COLUMNS = frozenset({"ids", "ends", *KNOWN_STREAMS})


def array_json(values: Any, whole: bool) -> bytes:
    """One array as JSON. NaN and infinities are texts, missing values null."""
    np = sys.modules.get("numpy")
    if np is not None and isinstance(values, np.ndarray):
        try:
            flat = np.ascontiguousarray(values.reshape(-1), dtype="i4" if whole else "f4")
            is_same = not whole and _is_same(flat)
            some = flat[:1] if is_same else flat
            if whole or bool(np.isfinite(some).all()):
                text = orjson.dumps(some, option=orjson.OPT_SERIALIZE_NUMPY)
                return _repeated(text, len(flat)) if is_same else text
        except (TypeError, ValueError):
            pass  # objects among the numbers (None): one by one
        values = values.reshape(-1)
    return orjson.dumps(
        [v if v is None or v - v == 0 else non_finite(v) for v in to_list(values, whole)]
    )


def _is_same(flat: Any) -> bool:
    """Is one number repeated throughout? The advantages of a rollout mostly are, and putting
    them into text took a third of the time of all streams. (For whole numbers it does not pay.)"""
    if len(flat) < _WORTH_A_LOOK:
        return False
    bits = flat.view("i4")  # as bits: 0.0 and -0.0 differ
    return bool(bits[0] == bits[-1]) and bool((bits == bits[0]).all())


_WORTH_A_LOOK = 16


def _repeated(text: bytes, count: int) -> bytes:
    """`[x]` as `[x,x,...]`."""
    one = text[1:-1]
    return b"[" + (one + b",") * (count - 1) + one + b"]"
