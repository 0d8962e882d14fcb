"""Selections in numbers: runs, counts per value, histograms, steps, tasks, fates, failures."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.known import known
from ...query.facets import Histogram
from ...query.findings import CheckCount
from ...query.named import NamedKey
from ...query.overview import Failure, StepNumbers, Tally
from ...query.tasks import Task
from .rows import Number, RolloutRow


@known
class ListedRun(msgspec.Struct, kw_only=True):
    """A run as `query.runs.RunSummary` tells it, but for where it lies on disk."""

    project: str
    run: str
    rollouts: int
    superseded: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last: float | None = msgspec.field(default=None, name="last_time")
    live: bool = False
    """Is a process still writing to it?"""


class Runs(msgspec.Struct, kw_only=True):
    runs: list[ListedRun]


class ShownValue(msgspec.Struct, kw_only=True):
    value: str | None
    """Null: not known."""
    count: int


class ShownFacet(msgspec.Struct, kw_only=True):
    key: str
    values: list[ShownValue]
    more: int = 0
    """Distinct values beyond those listed."""


class Facets(msgspec.Struct, kw_only=True):
    facets: list[ShownFacet]


class Names(msgspec.Struct, kw_only=True):
    names: list[NamedKey]


class Histograms(msgspec.Struct, kw_only=True):
    histograms: list[Histogram]


class Alarm(msgspec.Struct, kw_only=True):
    """What a check found in a step."""

    check: str
    step: int
    split: str | None = None
    text: str
    query: str
    """Finds the rollouts that it is made of."""


class RibbonRun(msgspec.Struct, kw_only=True):
    project: str
    run: str
    split: str | None = None
    steps: list[StepNumbers] = []
    metrics: dict[str, list[tuple[int, Number]]] = {}
    """All that were logged, by name; (step, value) only of those asked for."""
    alarms: list[Alarm] = []
    """What checks found in these steps."""


class Ribbon(msgspec.Struct, kw_only=True):
    runs: list[RibbonRun]


class Tasks(msgspec.Struct, kw_only=True):
    tasks: list[Task]
    count: int
    runs: int
    """Runs of the selection that have tasks: so many are taken together."""


class History(msgspec.Struct, kw_only=True):
    """One task: every rollout of it, by run, step and place."""

    task: str
    dataset: str | None = None
    rows: list[RolloutRow]
    count: int
    preview: str | None = None
    reference: Any = None


class Funnel(msgspec.Struct, kw_only=True):
    total: int
    stages: list[Tally]
    ends: list[Tally]


class ShownFailure(Failure, kw_only=True, frozen=True):
    """Rollouts that failed in the same way, with one of them to show."""

    example: RolloutRow | None = None


class Failures(msgspec.Struct, kw_only=True):
    total: int
    kinds: list[Tally]
    failures: list[ShownFailure]


class Checks(msgspec.Struct, kw_only=True):
    """What each check found in a selection of `total` rollouts, the worst first."""

    total: int
    checks: list[CheckCount] = []
