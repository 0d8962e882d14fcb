"""A taskset of verifiers: four echoes."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf
from world import Echo, task

__all__ = ["Echoes"]


class EchoesConfig(vf.TasksetConfig):
    id: str = "echoes"


class Echoes(vf.Taskset[Echo, EchoesConfig]):
    def load(self) -> Iterable[Echo]:
        return [task(n) for n in range(4)]
