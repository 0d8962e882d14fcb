"""Sending stored rollouts when a person asks for it, with the same journal as live forwarding."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..model.cleaner import Cleaner
from ..store.read.reader import Reader
from ..store.writers import read_infos
from . import lock
from .base import Target
from .choose import Candidate, choose
from .journal import IdDigest, Journal
from .look import Looker, rows_of
from .process import requested
from .send import Fetch, Sender, SinkFailed, backoff, fetcher
from .spec import Spec

TRIES = 5
"""Failures in a row until a person is told."""


class Exported(NamedTuple):
    """What became of the rollouts that were asked for."""

    sent: int = 0
    before: int = 0
    """The other system had them already."""
    updated: int = 0
    not_updated: int = 0
    """They have facts that the other system cannot take, mostly late ones."""
    left_out: int = 0
    """The cap left them out."""
    gave_up: int = 0

    def __add__(self, other: tuple[int, ...]) -> Exported:  # type: ignore[override]
        return Exported(*(a + b for a, b in zip(self, other, strict=True)))


class Busy(Exception):
    """A process forwards this run to this sink now."""


def export(
    reader: Reader,
    spec: Spec,
    ids: list[str],
    *,
    cleaner: Cleaner | None = None,
    again: bool = False,
    told: Callable[[int], None] = lambda done: None,
    tell: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Send these rollouts, each to the run that it belongs to.

    `cleaner` removes secrets. `told` is called with the number of finished rollouts, and `tell`
    with a text if something is in the way. Raises SinkFailed if the other system does not answer,
    and Busy if another process is sending. Rollouts that were sent by then stay sent.
    """
    total, done = Exported(), 0
    for (project, run, directory), rows in rows_of(reader, ids).items():
        target = Target(project, run)
        with _sender(directory, target, spec, again=again) as sender:
            total += _send(sender, rows, fetcher(reader, cleaner), _from(done, told), tell)
            looker = Looker(reader, project, run, None)
            _patiently(partial(sender.send_metrics, looker, cleaner), sender, tell)
        done += len(rows)
    return total


def _from(done: int, told: Callable[[int], None]) -> Callable[[int], None]:
    return lambda count: told(done + count)


@contextmanager
def _sender(directory: Path, target: Target, spec: Spec, *, again: bool) -> Iterator[Sender]:
    """Sends one run while holding its lock."""
    try:
        held = lock.take(directory, spec.name)
    except lock.Unsupported:
        held = None  # without locks there is no live forwarding either
    else:
        if held is None:
            raise Busy(
                f"a process is sending {target.project}/{target.run} to {spec.name} now; "
                "`rollscope doctor` says how far it is"
            )
    known = requested(read_infos(directory).values(), spec.name)
    hints = known.hints if known is not None else {}
    sender = Sender(directory, spec, target._replace(hints=hints), again=again)
    try:
        yield sender
    finally:
        sender.close()
        sender.state.ended = time.time()
        sender.save()
        if held is not None:
            os.close(held)


def _send(
    sender: Sender,
    rows: list[Candidate],
    fetch: Fetch,
    told: Callable[[int], None],
    tell: Callable[[str], None],
) -> Exported:
    _patiently(sender.connect, sender, tell)
    journal, counts = sender.journal, sender.state.counts
    assert journal is not None
    chosen = _capped(rows, sender.spec, journal.sent.keys() | journal.doubtful.keys())
    pairs = [(row.id, row.digest) for row in chosen]
    new = [pair for pair in pairs if pair[0] not in journal.sent]
    changed = [pair for pair in pairs if journal.sent.get(pair[0], pair[1]) != pair[1]]
    before = msgspec.structs.replace(counts)
    told(len(rows) - len(new) - len(changed))
    for work, send in ((new, sender.send), (changed, sender.update)):
        while left := [pair for pair in work if _is_left(journal, pair)]:
            try:
                for count in send(left, fetch):
                    told(len(rows) - len(left) + count)
                break
            except SinkFailed as failure:
                _wait(failure, sender, tell)
    counts.waiting = max(0, before.waiting - (counts.sent - before.sent))
    return Exported(
        sent=counts.sent - before.sent,
        before=len(pairs) - len(new),
        updated=counts.updated - before.updated,
        not_updated=counts.not_updated - before.not_updated,
        left_out=len(rows) - len(chosen),
        gave_up=counts.gave_up - before.gave_up,
    )


def _is_left(journal: Journal, pair: IdDigest) -> bool:
    return pair[0] not in journal.gave_up and journal.sent.get(pair[0]) != pair[1]


def _patiently(call: Callable[[], None], sender: Sender, tell: Callable[[str], None]) -> None:
    while True:
        try:
            return call()
        except SinkFailed as failure:
            _wait(failure, sender, tell)


def _wait(failure: SinkFailed, sender: Sender, tell: Callable[[str], None]) -> None:
    """After a failure: wait, or raise it when there were too many in a row."""
    sender.failed(failure)
    if sender.state.failures >= TRIES or isinstance(failure.__cause__, ImportError):
        raise failure
    pause = backoff(sender.state.failures)
    tell(f"{failure}; trying again in {pause:.0f} s")
    time.sleep(pause)


def _capped(rows: list[Candidate], spec: Spec, sent: set[str]) -> list[Candidate]:
    slots: dict[object, list[Candidate]] = {}
    for row in rows:
        slots.setdefault(row.slot, []).append(row)
    return [row for slot in slots.values() for row in choose(slot, spec.sample, sent)]
