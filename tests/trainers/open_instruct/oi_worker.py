"""What a Ray worker needs before it can import open-instruct here; Ray calls `prepare` in each."""

from __future__ import annotations

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
        return self.dataset[self.i % len(self.dataset)]

    def exclude_index(self, index: int) -> None: ...
