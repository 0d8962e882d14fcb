"""Sending to one sink: the journal around each call, and what to do if a call fails.

The forwarding process uses it while a run goes on, and `rollscope export` afterwards. Both write
the same journal, so neither sends again what the other has sent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..model import Rollout
from ..model.cleaner import Cleaner
from ..store.read.outgoing import outgoing
from ..store.read.reader import Reader
from . import state as states
from .base import Refused, Sink, Target
from .journal import IdDigest, Journal
from .look import Looker
from .spec import Spec, load
from .state import SinkState

T = TypeVar("T")
Fetch = Callable[[list[str]], list[tuple[Rollout, int]]]
"""Whole rollouts by their ids, each with its size in characters."""

BATCH = 32
"""Rollouts that are sent at a time."""
BATCH_SIZE = 8 << 20
"""Characters and tokens that are sent at a time, about."""
REFUSED = 3
"""A single rollout is given up after this many failures, if others go through."""
LONGEST_WAIT = 300.0
"""Seconds between two tries, at most."""


class SinkFailed(Exception):
    """The other system, or its library, does not do what was asked. The text is for people."""


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(LONGEST_WAIT, 2.0 ** min(failures - 1, 20)) * random.uniform(0.5, 1.5))


class Sender:
    """Sends the rollouts of one run to one sink, each once."""

    def __init__(
        self,
        directory: Path,
        spec: Spec,
        target: Target,
        *,
        watch: Callable[[bool], None] = lambda is_calling: None,
        again: bool = False,
    ) -> None:
        self.directory = directory
        self.spec = spec
        self.state = states.read(directory, spec.name) or SinkState(sink=str(spec))
        self.state.sink = str(spec)
        self.journal: Journal | None = None
        self._target = target
        self._sink: Sink | None = None
        self._watch = watch
        self._again = again
        self._batch = BATCH
        self._fit = 8
        """Rollouts that may be in memory at a time."""
        self._asked = repr((str(spec), sorted(target.hints.items())))
        if self.state.to is not None and self.state.asked == self._asked and not again:
            self._read_journal(self.state.to)

    # -- the connection ------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._sink is not None

    @property
    def can_update(self) -> bool:
        """Does the other system take later facts, as far as is known?"""
        return self._sink is None or self._sink.can_update

    def connect(self) -> None:
        """Open the sink, unless it is open. Only now it is known what was sent there before."""
        if self._sink is not None:
            return
        sink = self._call("open", lambda: load(self.spec.name)(self._target, self.spec.own))
        to = self._call("open", sink.open)
        if to != self.state.to or self.journal is None:
            self._read_journal(to)
        if to != self.state.to:
            self.state.to, self.state.metrics = to, None
        self.state.asked = self._asked
        self._sink = sink

    def _read_journal(self, to: str) -> None:
        if self.journal is not None:
            self.journal.close()
        path = self.directory / "sinks" / f"{self.spec.name}.jsonl"
        self.journal = Journal(path, to, forget=self._again)
        self.state.counts.sent = len(self.journal.sent)
        self.state.counts.gave_up = len(self.journal.gave_up)

    def close(self) -> None:
        """Close the sink and the journal."""
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                self._call("close", sink.close)
            except SinkFailed as failure:
                self.failed(failure)
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        self.save()

    # -- sending -------------------------------------------------------------------------

    def send(self, pairs: Sequence[IdDigest], fetch: Fetch) -> Iterator[int]:
        """Send these rollouts. After each batch, yields how many are finished. Raises SinkFailed if
        the rest must be tried again later.
        """
        self.connect()
        journal = self._journal
        self._ask(journal)
        left = [pair for pair in pairs if pair[0] not in journal.sent]
        left.sort(key=lambda pair: self._is_odd(pair[0]))  # the suspicious ones last
        while left:
            count = 1 if self._is_odd(left[0][0]) else min(self._batch, self._fit)
            batch, left = left[:count], left[count:]
            rollouts = self._fetch(batch, fetch)
            if rollouts:
                self._send(batch, rollouts)
            yield len(pairs) - len(left)

    def _fetch(self, batch: Sequence[IdDigest], fetch: Fetch) -> list[Rollout]:
        """These rollouts, whole, without those that have gone from the store. Their lengths are
        known only now, so they decide the size of the next batch."""
        found = fetch([id for id, _ in batch])
        mean = sum(size for _, size in found) // max(1, len(found))
        self._fit = max(1, min(BATCH, BATCH_SIZE // max(1, mean)))
        return [rollout for rollout, _ in found]

    def _send(self, batch: list[IdDigest], rollouts: list[Rollout]) -> None:
        journal, sink = self._journal, self._opened
        journal.sending(batch)
        self.save()
        there = {rollout.id for rollout in rollouts}
        try:
            self._call("send", lambda: sink.send(rollouts))
        except Refused as refused:
            there -= refused.ids
            self._give_up([id for id, _ in batch if id in refused.ids], str(refused))
            if refused.partly:
                self.state.counts.not_updated += len(refused.partly)
                self.state.not_updated_why = next(iter(refused.partly.values()))
        except SinkFailed:
            self.refuse([id for id, _ in batch])
            raise
        journal.have([pair for pair in batch if pair[0] in there])
        journal.has_not(id for id, _ in batch if id not in there)
        self._batch = min(BATCH, 2 * self._batch)
        self.state.counts.sent = len(journal.sent)
        self._judge(journal)
        self.worked()

    def refuse(self, ids: Sequence[str]) -> None:
        """A sending failed. Is it the system, or one of the rollouts? Smaller batches tell."""
        self._batch = max(1, min(len(ids), self._batch) // 2)
        if len(ids) == 1 and ids[0] not in self.state.suspects:
            self.state.suspects.append(ids[0])

    def _is_odd(self, id: str) -> int:
        return (id in self.state.suspects) + self.state.refused.get(id, 0)

    def _judge(self, journal: Journal) -> None:
        """Something was sent, so the system works. A rollout that failed alone was refused."""
        refused = self.state.refused
        for id in self.state.suspects:
            refused[id] = refused.get(id, 0) + 1
        self.state.suspects = []
        hopeless = [id for id, times in refused.items() if times >= REFUSED]
        for id in {*hopeless, *(refused.keys() & journal.sent.keys())}:
            del refused[id]
        self._give_up(hopeless, self.state.error or "")

    def _give_up(self, ids: list[str], why: str) -> None:
        if ids:
            self._journal.give_up(ids)
            self.state.counts.gave_up = len(self._journal.gave_up)
            self.state.gave_up_why = why

    def _ask(self, journal: Journal) -> None:
        """Ask the other system whether rollouts arrived whose sending failed or was cut off."""
        doubtful = dict(journal.doubtful)
        if doubtful:
            sink = self._opened
            held: Collection[str] = self._call("holds", lambda: sink.holds(doubtful.keys()))
            journal.have([(id, digest) for id, digest in doubtful.items() if id in held])
            journal.has_not(id for id in doubtful if id not in held)

    def update(self, pairs: Sequence[IdDigest], fetch: Fetch) -> Iterator[int]:
        """Tell later facts of rollouts that were sent. Raises SinkFailed."""
        self.connect()
        done = 0
        while done < len(pairs):
            batch = pairs[done : done + self._fit]
            for rollout in self._fetch(batch, fetch):
                self._update(rollout)
            self._journal.have(batch)
            self.worked()
            done += len(batch)
            yield done

    def _update(self, rollout: Rollout) -> None:
        sink = self._opened
        could = self._call("update", lambda: sink.update(rollout))
        self.state.counts.updated += bool(could)
        self.state.counts.not_updated += not could

    def send_metrics(self, looker: Looker, cleaner: Cleaner | None = None) -> None:
        """Send the run's metrics, if the other system wants them. Raises SinkFailed."""
        sink, mark = self._opened, looker.metrics_mark()
        if sink.wants_metrics and self.state.metrics != mark:
            for batch in looker.metrics():
                if cleaner is not None:
                    batch = [metric._replace(name=cleaner.text(metric.name)) for metric in batch]
                self._call("send_metrics", partial(sink.send_metrics, batch))
                self.state.counts.metrics += len(batch)
                self.worked()
        self.state.metrics = mark

    # -- what goes wrong -----------------------------------------------------------------

    def _call(self, name: str, call: Callable[[], T]) -> T:
        """Every call of a sink. What it raises becomes a SinkFailed with words for people."""
        self.state.calling = name
        self.save()
        self._watch(True)
        try:
            return call()
        except Refused:
            raise
        except ImportError as error:
            raise SinkFailed(_missing(self.spec.name, error)) from error
        except Exception as error:
            said = " ".join(str(error).split())  # some write paragraphs
            raise SinkFailed(f"{name}: {type(error).__name__}: {said}") from error
        finally:
            self._watch(False)
            self.state.calling = None

    def failed(self, why: SinkFailed | str) -> float:
        """Count a failure; returns how many seconds to wait."""
        state = self.state
        state.counts.failed += 1
        state.failures += 1
        state.error, state.error_time = str(why)[:1000], time.time()
        wait = backoff(state.failures)
        state.next_try = time.time() + wait
        self.save()
        return wait

    def worked(self) -> None:
        """Something went well."""
        self.state.failures = 0
        self.state.next_try = None

    def save(self) -> None:
        states.write(self.directory, self.spec.name, self.state)

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None, "connect first"
        return self.journal

    @property
    def _opened(self) -> Sink:
        assert self._sink is not None, "connect first"
        return self._sink


def _missing(name: str, error: ImportError) -> str:
    if error.name is None:  # the sink says itself what to do
        return f"the sink {name!r} cannot be used here: {error}"
    module = error.name.partition(".")[0]
    return (
        f"the sink {name!r} needs the package {module!r}, which is not installed here: "
        f"pip install {PACKAGES.get(name, module)}"
    )


PACKAGES: Mapping[str, str] = {
    "trackio": "trackio",
    "mlflow": "mlflow",
    "weave": "weave",
    "otlp": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
}
"""What to install for a sink."""


def fetcher(reader: Reader, cleaner: Cleaner | None = None) -> Fetch:
    """Reads rollouts as they leave the house, in one batch."""

    def fetch(ids: list[str]) -> list[tuple[Rollout, int]]:
        found = outgoing(reader, ids, cleaner, batch=len(ids))
        return [(stored.rollout, stored.size) for stored in found]

    return fetch
