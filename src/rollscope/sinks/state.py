"""How forwarding goes: `<run>/sinks/<name>.json`, replaced as it goes on."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ..model.known import known
from ..store import small
from ..store.paths import entries, replace_file
from . import lock


class SinkCounts(msgspec.Struct, kw_only=True):
    """What became of the rollouts of a run, as far as one sink is concerned."""

    sent: int = 0
    """The other system has them."""
    updated: int = 0
    """How often the other system took later facts of a rollout, in all processes."""
    not_updated: int = 0
    """How often the other system could not take late facts, or some of the first."""
    waiting: int = 0
    """Ready to be sent, and not sent yet."""
    left_out: int = 0
    """Not sent, because the cap says so."""
    failed: int = 0
    """Calls of the other system that failed; each was tried again."""
    gave_up: int = 0
    """Rollouts that the other system refused again and again; not tried any more."""
    metrics: int = 0
    """Values of metrics that were sent, in all processes."""


@known
class SinkState(msgspec.Struct, kw_only=True):
    """`<run>/sinks/<name>.json`."""

    sink: str
    """As it was asked for, with its options."""
    to: str | None = None
    """Where the rollouts go, in the sink's words; None: not connected yet."""
    asked: str | None = None
    """What was asked for and what the trainer had opened when `to` was found."""
    metrics: str | None = None
    """What the run's metrics looked like when they were last sent there, if they are wanted."""
    pid: int = 0
    place: str = ""
    """Machine, boot and process namespace of `pid`."""
    process_start: str | None = None
    started: float = 0.0
    ended: float | None = None
    """When the forwarding process ended in order; None: it runs, or it was killed."""
    complete: int = 0
    """If it ended with nothing left to do: how many writers had ended by then. Otherwise 0."""
    calling: str | None = None
    """The sink's method that is running; if the process is gone, it died or hung in it."""
    counts: SinkCounts = msgspec.field(default_factory=SinkCounts)
    error: str | None = None
    """The last failure, in words for a person."""
    error_time: float | None = None
    failures: int = 0
    """Failures since the last success."""
    next_try: float | None = None
    suspects: list[str] = msgspec.field(default_factory=list)
    """Rollouts whose sending alone failed since the last success."""
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """How often the sending of a rollout failed while others could be sent."""
    gave_up_why: str | None = None
    """What the other system said when it last refused a rollout for good."""
    not_updated_why: str | None = None
    """What the other system said when it last took a rollout without some of its facts."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What else a person should know."""


def path(directory: Path, name: str) -> Path:
    return directory / "sinks" / f"{name}.json"


def read(directory: Path, name: str) -> SinkState | None:
    """The state of a sink; None: it was never begun, or cannot be read."""
    try:
        return small.load(path(directory, name), SinkState)
    except (OSError, ValueError):
        return None


def read_all(directory: Path) -> dict[str, SinkState]:
    """Every sink of a run, by name."""
    files = (Path(entry.path) for entry in entries(directory / "sinks"))
    found = {file.stem: read(directory, file.stem) for file in files if file.suffix == ".json"}
    return {name: state for name, state in found.items() if state is not None}


def write(directory: Path, name: str, state: SinkState) -> None:
    """Raises OSError on a full disk. Nothing may be sent then, because it could be sent again."""
    data = msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"
    file = path(directory, name)
    file.parent.mkdir(exist_ok=True)
    replace_file(file, data)


def is_forwarding(directory: Path, name: str) -> bool:
    """Does a process forward now, as far as can be told?"""
    try:
        return lock.is_held(directory, name)
    except (lock.Unsupported, OSError):  # no locks here, or no right to ask
        return False


def words(state: SinkState) -> str:
    """In a few words: what was sent, what was not, and why."""
    c = state.counts
    told = [f"{c.sent:,} sent"]
    for count, what in (
        (c.waiting, "waiting"),
        (c.left_out, "left out by the cap"),
        (c.gave_up, "refused by it and given up"),
        (c.updated, "updated later"),
        (c.not_updated, "facts that it cannot take"),
        (c.failed, "calls failed"),
        (c.metrics, "values of metrics"),
    ):
        told += [f"{count:,} {what}"] if count else []
    return ", ".join(told) + (f"; to {state.to}" if state.to else "; not connected yet")


def trouble(state: SinkState) -> str | None:
    """What is wrong now, if anything is."""
    if not state.failures or state.error is None:
        return None
    text = state.error
    if state.failures > 1:
        text += f" (the {state.failures:,} last calls failed)"
    if state.next_try is not None and state.ended is None:
        text += f"; tried again in {max(0, state.next_try - time.time()):.0f} s"
    return text
