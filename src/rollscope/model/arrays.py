"""Token arrays on their way into a line: copied when the trainer calls, and turned into text later,
by the background thread."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import orjson

from .normalise import non_finite
from .staged import Staged, staged_alone
from .tokens import KNOWN_STREAMS, detached, is_int, to_list

Arrays = dict[str, Any]
"""Copied arrays by name. One named "" stands alone; others make an object."""


def frozen(values: Any) -> Any:
    """A cheap copy that the trainer can no longer change: a tuple, an array's bytes, or a copy that
    is on its way from a GPU."""
    np = sys.modules.get("numpy")
    if np is not None and type(values) is np.ndarray:
        return _array_copy(values, np)
    if type(values) is list:
        return tuple(values)
    if type(values) is tuple or isinstance(values, (array, bytes)):
        return values if type(values) is tuple else values[:]
    if np is not None and hasattr(values, "numpy"):
        copy = staged_alone(values) or _tensor_copy(values, np)
        if copy is not None:
            return copy
    if np is not None and hasattr(values, "__array__"):
        try:
            # Always a copy. What a masked array hides is not known.
            return values.copy() if is_masked(values, np) else np.array(values)
        except (TypeError, ValueError, RuntimeError):
            pass  # on a device that it will not leave by itself
    if hasattr(values, "tolist"):
        return tuple(values.tolist())
    if np is not None and hasattr(values, "__dlpack__"):
        return np.from_dlpack(values).copy()
    return tuple(values)


def is_masked(values: Any, np: Any) -> bool:
    return isinstance(values, np.ma.MaskedArray)


def _array_copy(values: Any, np: Any) -> Any:
    """`values.copy()`, flat, without releasing the interpreter's lock: that would wake the writer's
    thread each time, only to find the lock taken again."""
    if values.dtype.hasobject:
        return values.copy()
    return np.frombuffer(values.tobytes(), values.dtype)


def _tensor_copy(tensor: Any, np: Any) -> Any:
    """A tensor as an array: as it is, or detached and on the host, or (bfloat16) as float32. None
    if none of these works."""
    for ready in (None, detached, lambda t: detached(t).float()):
        try:
            return _array_copy((tensor if ready is None else ready(tensor)).numpy(), np)
        except (TypeError, RuntimeError, AttributeError):
            continue
    return None


def is_here(values: Any) -> bool:
    return type(values) is not Staged or values.is_here()


def nbytes(values: Any) -> int:
    if type(values) is tuple:
        return 8 * len(values)
    size = getattr(values, "nbytes", None)
    return int(size) if size is not None else 8 * len(values)


def arrays_json(arrays: Arrays, problems: list[str] | None) -> list[bytes]:
    """Their text, in pieces: one copy less than a whole."""
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
            return [body]
        if body != b"null":
            items = known if name in _COLUMNS else others
            items += (b",", orjson.dumps(str(name)), b":", body)
    if others:
        known += (b",", b'"streams":{', *others[1:], b"}")
    return [b"{", *known[1:], b"}"]


_COLUMNS = frozenset({"ids", "ends", *KNOWN_STREAMS})


def array_json(values: Any, whole: bool) -> bytes:
    """One array as JSON. NaN and infinities are texts, missing values null.

    It avoids NumPy's own loops: each releases the interpreter's lock for a microsecond, and a busy
    main thread then keeps it for five milliseconds.
    """
    np = sys.modules.get("numpy")
    if type(values) is Staged:
        values = values.array()
    if np is not None and isinstance(values, np.ndarray):
        values = values.reshape(-1)
        if is_masked(values, np):
            return _masked_json(values, whole, np)
        is_whole = whole and values.dtype.kind in "iu"  # of any size, they look the same as text
        try:
            flat = np.ascontiguousarray(values, None if is_whole else "i4" if whole else "f4")
            is_same = _is_same(flat.tobytes(), flat.itemsize)
            text = orjson.dumps(flat[:1] if is_same else flat, option=orjson.OPT_SERIALIZE_NUMPY)
            if b"n" not in text:  # NaN and infinities have become null
                return _repeated(text, len(flat)) if is_same else text
        except (TypeError, ValueError):
            pass  # objects among the numbers (None): one by one
    elif type(values) is tuple:
        plain = _tuple_json(values, whole, np)
        if plain is not None:
            return plain
    return _one_by_one(values, whole)


def _one_by_one(values: Any, whole: bool) -> bytes:
    return orjson.dumps(
        [v if v is None or v - v == 0 else non_finite(v) for v in to_list(values, whole)]
    )


def _tuple_json(values: tuple[Any, ...], whole: bool, np: Any) -> bytes | None:
    """A tuple of Python's own numbers as JSON, without a look at each. None: they need one."""
    kinds = set(map(type, values))
    if whole and kinds <= _WHOLE:
        try:
            return orjson.dumps(values)
        except TypeError:  # more than 64 bits
            return None
    if whole or np is None or not kinds <= _REAL:
        return None
    with np.errstate(over="ignore"):
        flat = np.array(values, "f4")  # None is NaN there
    if len(values) - int(np.isfinite(flat).sum()) != values.count(None):
        return None
    return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)


_WHOLE, _REAL = {int, type(None)}, {float, int, type(None)}


def _masked_json(values: Any, whole: bool, np: Any) -> bytes:
    """A masked array as JSON: what is hidden is missing."""
    hidden = np.ma.getmaskarray(values)
    shown = values.data[~hidden]
    if not whole and values.dtype.kind in "fiu" and np.isfinite(shown).all():
        # NaN is what orjson writes as null.
        flat = np.where(hidden, np.float32("nan"), values.data.astype("f4"))
        return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    return _one_by_one(values, whole)


def _is_same(data: bytes, size: int) -> bool:
    """Is one number (of this many bytes) repeated throughout? Masks and advantages mostly are such,
    and writing their numbers one by one took a third of the time of all streams."""
    return len(data) > size and data[:size] == data[-size:] and data[size:] == data[:-size]


def _repeated(text: bytes, count: int) -> bytes:
    """`[x]` as `[x,x,...]`."""
    one = text[1:-1]
    return b"".join((b"[", one, (b"," + one) * (count - 1), b"]"))
