"""Trained before its weights were made."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Evidence, Spot, check
from ..subject import OneRollout


def versions(one: OneRollout) -> list[int]:
    """Every version of the weights that drew a token, or that the rollout began with."""
    found = {v for _, values in one.streams("version") for v in values if v is not None and v >= 0}
    return sorted(found) or [v for v in (one.rollout.policy_version,) if v is not None]


VERSIONS = Evidence(
    "the step that trained on it, and versions of the weights",
    lambda one: one.rollout.trained_step is not None and bool(versions(one)),
)


@check(
    "version.future",
    kind="record",
    means="Weights newer than the step that trained on the rollout have drawn it: steps or "
    "versions are stamped wrong.",
    source="ours",
    needs=[VERSIONS],
)
def future(one: OneRollout) -> Iterator[Spot]:
    newest, step = versions(one)[-1], one.rollout.trained_step
    if step is not None and newest > step:
        yield Spot(f"drawn by version {newest}, trained on at step {step}", value=newest - step)
