"""Requests small enough for the other system, and what to do when it refuses one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..model import Rollout

T = TypeVar("T")
Trace = tuple[Rollout, T]
"""A rollout, and what the other system is told of it."""


class NotTaken(Exception):
    """The other system will never take this request: sending it again is useless."""


def send_in_batches(
    traces: Iterable[Trace[T]],
    send: Callable[[list[Trace[T]]], None],
    *,
    size: Callable[[T], int],
    most: int,
) -> dict[str, str]:
    """Send rollouts in requests of at most this size, unless a single one is larger.

    `send` raises NotTaken for a request that is refused for good. Systems do not say which
    rollout is to blame, so each is then sent by itself. The answer names those that failed
    alone, with the reasons.
    """
    refused: dict[str, str] = {}
    for batch in _batches(traces, size, most):
        refused |= _send(batch, send)
    return refused


def _send(batch: list[Trace[T]], send: Callable[[list[Trace[T]]], None]) -> dict[str, str]:
    try:
        send(batch)
    except NotTaken as error:
        if len(batch) == 1:
            return {str(batch[0][0].id): str(error)}
        return {id: why for one in batch for id, why in _send([one], send).items()}
    return {}


def _batches(
    traces: Iterable[Trace[T]], size: Callable[[T], int], most: int
) -> Iterator[list[Trace[T]]]:
    batch: list[Trace[T]] = []
    total = 0
    for trace in traces:
        grown = size(trace[1])
        if batch and total + grown > most:
            yield batch
            batch, total = [], 0
        batch.append(trace)
        total += grown
    if batch:
        yield batch
