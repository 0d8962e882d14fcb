"""What a Ray worker needs before it can import open-instruct here; Ray calls `prepare` in each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import standins
import torch


def prepare() -> None:
    standins.install()
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]


class Prompts:
    """The data loader: the real one is built on OLMo-core's, which is not here."""

    _epoch = 0

    def __init__(self, dataset: Any = (), **_: Any) -> None:
        self.dataset = dataset
        self.i = 0

    def __next__(self) -> Any:
        self.i += 1
        self._epoch = self.i // len(self.dataset)
        return self.dataset[self.i % len(self.dataset)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def reset(self) -> None: ...

    def exclude_index(self, index: int) -> None: ...
