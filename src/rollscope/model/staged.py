"""Token arrays of a GPU, on their way to the host while the trainer goes on.

The tensors of a batch are put together on the GPU, one array for each type, on the stream that
the caller uses: what it changes later, it changes after that. From there they go into pinned
memory, on a stream of our own. The background thread waits until they are there; the caller waits
for nothing. torch is only used if somebody has handed over its tensors.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from .records import Rollout
from .tokens import Tokens

_PART = 64 << 20
"""Bytes that are moved at once. All of them stay in memory until the last row is written."""


class Staged:
    """One array, as it was when the trainer handed it over."""

    __slots__ = ("_begin", "_end", "_part", "nbytes")

    def __init__(self, part: _Part, begin: int, end: int, nbytes: int) -> None:
        self._part = part
        self._begin = begin
        self._end = end
        self.nbytes = nbytes

    def is_here(self) -> bool:
        return self._part.is_here()

    def array(self) -> Any:
        """It, as an array of NumPy. Waits until it is on the host."""
        return self._part.array()[self._begin : self._end]


Moving = dict[int, Staged]
"""What is on its way, by the `id` of the tensor that was handed over."""


def staged(batch: Iterable[Rollout]) -> Moving:
    """All token arrays of these rollouts that lie on another device."""
    plain = _tensor()
    if plain is None:
        return {}
    return _moving(
        [
            values
            for rollout in batch
            for message in rollout.messages
            # A message, or its tokens, may be a dict still.
            if type(tokens := getattr(message, "tokens", None)) is Tokens
            for values in (tokens.ids, tokens.ends, *tokens.streams.values())
            if type(values) is plain and is_away(values)
        ]
    )


def staged_alone(values: Any) -> Staged | None:
    """One array. None if it is on the host, or cannot be moved like this."""
    if type(values) is not _tensor() or not is_away(values):
        return None
    return _moving([values]).get(id(values))


def is_away(tensor: Any) -> bool:
    return not tensor.is_cpu


def _tensor() -> Any:
    """torch's type, if torch is loaded and can make arrays of NumPy."""
    return getattr(sys.modules.get("torch"), "Tensor", None) if "numpy" in sys.modules else None


def _moving(tensors: list[Any]) -> Moving:
    """What cannot be moved with the others is left out: it is then taken over by itself."""
    kinds: dict[Any, list[Any]] = defaultdict(list)
    for values in tensors:
        kinds[values.dtype].append(values)
    found: Moving = {}
    for kind in kinds.values():
        for some, sizes in _parts(kind):
            try:
                part = _Part(some)
            except Exception:
                continue  # no memory there, several devices, or an odd type
            at, width = 0, part.itemsize
            for values, size in zip(some, sizes, strict=True):
                found[id(values)] = Staged(part, at, at + size, size * width)
                at += size
    return found


def _parts(tensors: list[Any]) -> Iterator[tuple[list[Any], list[int]]]:
    """The tensors and their sizes, cut where they come to `_PART` bytes."""
    sizes = [values.numel() for values in tensors]
    width, begin, total = tensors[0].element_size(), 0, 0
    if sum(sizes) * width > _PART:
        for place, size in enumerate(sizes):
            total += size * width
            if total > _PART and place > begin:
                yield tensors[begin:place], sizes[begin:place]
                begin, total = place, size * width
    yield tensors[begin:], sizes[begin:]


class _Part:
    """Tensors of one type, moved at once."""

    def __init__(self, tensors: list[Any]) -> None:
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            try:
                values = torch.cat(tensors).reshape(-1)
            except RuntimeError:  # they are not rows of the same shape
                values = torch.cat([tensor.reshape(-1) for tensor in tensors])
            kind = values.dtype
            if kind.is_floating_point and kind not in (torch.float32, torch.float64):
                values = values.float()  # bfloat16 and smaller: NumPy has no such type
        self.itemsize: int = values.element_size()
        self._event: Any = None
        if values.is_cuda:
            self._host, self._event = _to_pinned(values, torch.cuda, torch.empty)
        else:
            self._host = values.cpu()
        self._host.numpy()  # raises for what NumPy does not have

    def is_here(self) -> bool:
        try:
            return self._event is None or bool(self._event.query())
        except Exception:
            return True  # the GPU has failed, and `array` tells it

    def array(self) -> Any:
        if self._event is not None:
            self._event.synchronize()  # releases the interpreter's lock
            self._event = None
        return self._host.numpy()


def _to_pinned(values: Any, cuda: Any, empty: Any) -> tuple[Any, Any]:
    """Pinned memory that gets the values, and the event that says when it has."""
    device = values.device
    if device not in _streams:
        _streams[device] = cuda.Stream(device)
    stream = _streams[device]
    stream.wait_stream(cuda.current_stream(device))
    host = empty(values.shape, dtype=values.dtype, pin_memory=True)
    event = cuda.Event(blocking=True)  # its waiting leaves the core to others
    with cuda.stream(stream):
        host.copy_(values, non_blocking=True)
        event.record(stream)
    values.record_stream(stream)  # its memory is used again only after the copy
    return host, event


_streams: dict[Any, Any] = {}
"""Our stream of each device."""
