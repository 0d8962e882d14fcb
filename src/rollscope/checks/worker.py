"""The part of a scan that reads rollouts: in the scanning process, or in several beside it."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..model import Finding, Rollout
from ..query.runs import algorithm
from ..store.read.reader import Reader
from ..store.read.stream import streamed
from .look import Panel
from .settings import FILE, Settings
from .subject import OneRollout

if TYPE_CHECKING:
    from ..store.read.on_ray import StorePlace

Place = tuple[str, str, str]
"""The store's root, the directory of a run, and its project."""


class Looked(NamedTuple):
    """What was found in some rollouts, as lines of JSON on their way to the disk."""

    rollouts: int
    checked: bytes
    found: int
    findings: bytes
    broken: dict[str, list[str]]


class Looker:
    """Looks at rollouts of one run, over a reader of its own if none is given."""

    def __init__(
        self, place: Place, settings: Settings | None = None, reader: Reader | None = None
    ) -> None:
        self.place = place
        root, run, project = place
        settings = settings or Settings(Path(root) / FILE)
        self._checks = settings.bound(project)
        self._mine = None if reader is not None else Reader(root, only=Path(run), threads=1)
        self._reader = reader or self._mine

    def close(self) -> None:
        if self._mine is not None:
            self._mine.close()

    def look(self, signatures: Mapping[str, str]) -> Looked:
        """Let all checks look at these rollouts. Their signatures say what they looked at."""
        assert self._reader is not None
        self._reader.refresh()
        panel, encoder = Panel(self._checks), msgspec.json.Encoder()
        told = functools.cache(self._algorithm)
        checked, findings = bytearray(), bytearray()
        rollouts = found = 0
        for stored in streamed(self._reader, list(signatures)):
            rollout = stored.rollout
            one = OneRollout(rollout, is_open=stored.is_open, algorithm=told(rollout.launch))
            answer, digest = panel.rollout(one)
            about = place_of(rollout)
            row = {
                **about, "subject": "rollout", "found": sorted(answer.found),
                "unobserved": sorted(answer.unobserved),
                "signature": signatures[str(rollout.id)], "digest": digest,
            }  # fmt: skip
            checked += encoder.encode(row) + b"\n"
            for finding in answer.findings:
                findings += encoder.encode({**about, **finding_row(finding)}) + b"\n"
            rollouts += 1
            found += len(answer.findings)
        return Looked(rollouts, bytes(checked), found, bytes(findings), panel.broken)

    def _algorithm(self, launch: str | None) -> Mapping[str, Any]:
        """What the trainer's settings say in a launch; empty: not known."""
        assert self._reader is not None
        _, run, project = self.place
        # By name: on another machine the run lies elsewhere.
        mine = [info for info in self._reader.runs()
                if (info.directory.name, info.project) == (Path(run).name, project)]  # fmt: skip
        told = algorithm(mine, mine[0].run, launch, project) if mine else None
        return {} if told is None else msgspec.to_builtins(told)


def place_of(rollout: Rollout) -> dict[str, object]:
    """Where a rollout belongs, as the columns of both tables have it."""
    return {
        "project": rollout.project, "run": rollout.run, "split": rollout.split,
        "step": rollout.step, "rollout": rollout.id,
    }  # fmt: skip


def finding_row(finding: Finding) -> dict[str, object]:
    """A finding as columns; what is not known is not there."""
    return {name: value for name, value in msgspec.structs.asdict(finding).items()
            if value is not None}  # fmt: skip


_mine: Looker | None = None


def prepare() -> None:
    """In a process that is started for looking: Ctrl-C ends it through its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def look(place: Place, signatures: Mapping[str, str]) -> Looked:
    """In such a process: look at rollouts of a run."""
    global _mine
    if _mine is None or _mine.place != place:
        if _mine is not None:
            _mine.close()
        _mine = Looker(place)
    return _mine.look(signatures)


def look_on_ray(
    store: StorePlace, place: Place, settings: Settings | None, signatures: Mapping[str, str]
) -> Iterator[Looked]:
    """In a task of Ray: look at rollouts of a run."""
    from ..store.read.on_ray import opened

    yield Looker(place, settings, opened(store)).look(signatures)
