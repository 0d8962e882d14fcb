"""Rollouts as lists show them."""

from __future__ import annotations

import msgspec

Number = float | str | None
"""A number, one of "NaN", "Infinity", "-Infinity", or null: not known."""


class Row(msgspec.Struct, kw_only=True):
    """One rollout, thin: what a list shows."""

    id: str
    project: str | None = None
    run: str | None = None
    step: int | None = None
    trained_step: int | None = None
    split: str | None = None
    dataset: str | None = None
    task: str | None = None
    group: str | None = None
    index: int | None = None
    attempt: int | None = None
    reward: Number = None
    rewards: dict[str, Number] = {}
    advantage: Number = None
    stop_reason: str | None = None
    truncated: bool | None = None
    fate: str | None = None
    fate_reason: str | None = None
    error_kind: str | None = None
    error_type: str | None = None
    time: float | None = None
    duration: Number = None
    policy_version: int | None = None
    environment: str | None = None
    open: bool | None = None
    superseded: bool | None = None
    messages: int | None = None
    turns: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    tools: list[str] = []
    version_min: int | None = None
    version_max: int | None = None
    labels: list[str] = []
    flags: list[str] = []
    prompt_preview: str | None = None
    preview: str | None = None


class Listed(Row, kw_only=True):
    """One rollout of a page: `id`, and those of the other fields that were asked for."""


class Page(msgspec.Struct, kw_only=True):
    """A window of a selection."""

    rows: list[Listed]
    at: int
    """Place of the first row in the selection."""
    count: int
    """Rollouts in the selection."""
    superseded: int = 0
    """How many more it would be with those that a later launch replaced."""
    next: str | None = None
    """Cursor of the next page; null at the end."""
    generation: str = ""


class Place(msgspec.Struct, kw_only=True):
    """Where a rollout stands in a selection, from 0; null: it is not in it."""

    at: int | None = None


class Start(msgspec.Struct, kw_only=True):
    """Where to begin reading: the newest step's group with mixed rewards."""

    id: str | None = None
    best: str | None = None
    worst: str | None = None


class Found(msgspec.Struct, kw_only=True):
    """Told on `/api/search` while a text search goes on."""

    rows: list[Row]
    scanned: int
    total: int
    done: bool
    more: bool
    """It ended because it had found as many as a page holds: there may be others."""
