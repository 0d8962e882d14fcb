"""What a sink is: one other system that rollouts are forwarded to.

A sink is one module with one class. It runs in the forwarding process, never in training, and
knows nothing of cursors, retries or counters: `send` has those. Another package adds one by
the entry point `rollscope.sinks` (`name = "module:Class"`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple

from ..model import Rollout


class Target(NamedTuple):
    """The run that is forwarded, and what the trainer itself opened there."""

    project: str
    run: str
    hints: Mapping[str, str] = {}
    """What `Sink.hints` found in the training processes (an open MLflow run, ...)."""


class Refused(Exception):
    """The other system took the rest of a batch but will never take these rollouts (too large, not
    valid there). They are counted with the reason and not sent again. `partly` names rollouts that
    it took without some of their facts, and why: they count as sent, and the facts are counted."""

    def __init__(self, ids: Collection[str], why: str, *, partly: Mapping[str, str] = {}) -> None:
        super().__init__(why)
        self.ids = frozenset(ids)
        self.partly = partly


class Metric(NamedTuple):
    """One of the trainer's own numbers, as `run.metrics` recorded it."""

    name: str
    value: float
    step: int | None
    time: float


class Sink:
    """Sends rollouts of one run to one other system."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    """The options that this sink takes beside the caps, each with a line that explains it."""

    def __init__(self, target: Target, options: Mapping[str, str]) -> None:
        self.target = target
        self.options = options

    @classmethod
    def hints(cls) -> Mapping[str, str]:
        """What the trainer itself opened there. Asked from time to time in each training process.

        Must be cheap and must not import the other system: if it is not loaded, the trainer
        cannot have opened anything. Asked by a thread of its own. The forwarding process may
        have another working directory: make paths absolute. Tell no secrets: they are written
        to the store.
        """
        return {}

    def open(self) -> str:
        """Connect. Returns where the rollouts go, for people: an address or a file.

        It must be the same each time for the same place, because the journal remembers sendings by
        it. An option wins over the environment, the environment over the hints, and the hints over
        the names of the target.
        """
        raise NotImplementedError

    def send(self, rollouts: Sequence[Rollout]) -> None:
        """Send whole rollouts and return when the other system has them.

        If it raises, none of them counts as sent, and all are sent again later. So sending one
        twice must be harmless (make ids from the rollout's id), or `holds` must tell. If it raises
        `Refused`, the others of the batch count as sent.
        """
        raise NotImplementedError

    @property
    def can_update(self) -> bool:
        """Can the other system take later facts at all? Asked after `open`. If it cannot, a rollout
        is sent only when its advantage and its fate are no longer expected."""
        return type(self).update is not Sink.update

    def update(self, rollout: Rollout) -> bool:
        """Later facts of a rollout that was sent. False: this system cannot take them."""
        return False

    @property
    def wants_metrics(self) -> bool:
        """Is the run in the other system ours? Asked after `open`. If it is the trainer's, then the
        trainer logs its metrics there itself."""
        return False

    def send_metrics(self, metrics: Sequence[Metric]) -> None:
        """Send metrics of the run. Some may come again, so sending one twice must be harmless."""

    def holds(self, ids: Collection[str]) -> set[str]:
        """Which of these rollouts the other system already has. Asked for those that were on
        their way when a forwarding process died."""
        return set()

    def close(self) -> None:
        """Flush, and close the connection."""
