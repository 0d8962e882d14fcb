"""Selections in numbers: runs, counts per value, histograms, steps, tasks, fates, failures."""

from __future__ import annotations

from typing import Any

import msgspec

from .rows import Number, Row


class Run(msgspec.Struct, kw_only=True):
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
    runs: list[Run]


class Value(msgspec.Struct, kw_only=True):
    value: str | None
    """Null: not known."""
    count: int


class Facet(msgspec.Struct, kw_only=True):
    key: str
    values: list[Value]
    more: int = 0
    """Distinct values beyond those listed."""


class Facets(msgspec.Struct, kw_only=True):
    facets: list[Facet]


class Histogram(msgspec.Struct, kw_only=True):
    """Equal bins over the finite values; what is outside them is counted, never hidden."""

    key: str
    low: float | None = None
    high: float | None = None
    """End of the last bin."""
    most: float | None = None
    """The greatest value, which may lie before that end."""
    counts: list[int] = []
    missing: int = 0
    not_finite: int = 0
    mean: Number = None


class Histograms(msgspec.Struct, kw_only=True):
    histograms: list[Histogram]


class StepColumn(msgspec.Struct, kw_only=True):
    """One step of a run in numbers."""

    step: int | None
    rollouts: int
    mean: Number = None
    low: Number = None
    """10th percentile of the reward."""
    high: Number = None
    """90th percentile of the reward."""
    truncated: int = 0
    errors: int = 0
    groups: int = 0
    dead: int = 0
    scored: int = 0
    length: Number = None


class RibbonRun(msgspec.Struct, kw_only=True):
    project: str
    run: str
    split: str | None = None
    steps: list[StepColumn] = []
    metrics: dict[str, list[tuple[int, Number]]] = {}
    """All that were logged, by name; (step, value) only of those asked for."""


class Ribbon(msgspec.Struct, kw_only=True):
    runs: list[RibbonRun]


class TaskRow(msgspec.Struct, kw_only=True):
    """One task over all its steps."""

    task: str
    dataset: str | None = None
    rollouts: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    solved: int = 0
    scored: int = 0
    first_rate: Number = None
    last_rate: Number = None
    best_rate: Number = None
    flips: int = 0
    """How often the task changed between mostly solved and mostly not."""
    kind: str = ""
    """`flipped`, `regressed`, `mixed`, `never`, `always` or `not scored`."""
    preview: str | None = None


class Tasks(msgspec.Struct, kw_only=True):
    tasks: list[TaskRow]
    count: int


class History(msgspec.Struct, kw_only=True):
    """One task: every rollout of it, by run, step and place."""

    task: str
    dataset: str | None = None
    rows: list[Row]
    count: int
    preview: str | None = None
    reference: Any = None


class Bar(msgspec.Struct, kw_only=True):
    """One stage of the funnel, or one reason under it; `q` selects exactly its rollouts."""

    name: str
    count: int
    q: str
    reasons: list[Bar] = []


class Funnel(msgspec.Struct, kw_only=True):
    total: int
    stages: list[Bar]
    ends: list[Bar]


class Failure(msgspec.Struct, kw_only=True):
    kind: str | None
    type: str | None
    count: int
    q: str
    example: Row | None = None
    text: str | None = None
    first_step: int | None = None
    last_step: int | None = None


class Failures(msgspec.Struct, kw_only=True):
    total: int
    kinds: list[Bar]
    failures: list[Failure]
