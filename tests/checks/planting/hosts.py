"""Real rollouts, ready to have something planted into them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import rollscope
from rollscope import Rollout
from rollscope.store.read.stream import streamed

from ..corpus import Half, real
from . import Plant
from .steps import Run

DEMO_RUN = "lr-1e-3"
"""Of the demo: the run that goes well."""

STEPS = 26
APART = 4
"""Groups between two that are wrong."""
TASKS = 3
"""Of a run that something is planted into: so many steps, with so many groups each."""


def half_of(name: str) -> Half:
    """Of a group of the demo, which is one file: its task decides."""
    return "tuned" if sha256(name.encode()).digest()[0] % 2 else "held out"


class Hosts(NamedTuple):
    """Rollouts of one half."""

    rollouts: list[Rollout]
    groups: list[list[Rollout]]
    run: dict[int, list[Rollout]]
    """Steps of a run that goes well."""


def hosts(half: Half, demo: Path | None, each: int = 100) -> Hosts:
    """Hosts in a half of the files and of the demo's tasks: so many rollouts of each source."""
    draw = Random(f"hosts {half}")
    by_source: dict[str, list[Rollout]] = {}
    for found in real():
        if found.half == half:
            by_source.setdefault(f"{found.source} {found.file.split('/')[1]}", []).append(
                found.rollout
            )
    chosen = [one for ones in by_source.values() for one in draw.sample(ones, min(each, len(ones)))]
    groups = _groups(one for ones in by_source.values() for one in ones)
    run: dict[int, list[Rollout]] = {}
    if demo is not None:
        steps = _demo(demo, half)
        trained = [one for members in steps.values() for one in members]
        chosen += draw.sample(trained, min(3 * each, len(trained)))
        groups += _groups(trained)
        for step in sorted(steps)[:STEPS]:
            whole = [g for g in _groups(steps[step]) if len(g) == 8][:TASKS]
            run[step] = [one for group in whole for one in group]
    for group in groups:
        group.sort(key=lambda one: one.index or 0)
    return Hosts(chosen, [g for g in groups if len(g) >= 4], run)


def _demo(root: Path, half: Half) -> dict[int, list[Rollout]]:
    """Rollouts of the demo by step: as they end, without attempts that were repeated."""
    store = rollscope.open(root)
    found: dict[int, list[Rollout]] = {}
    for row in store.rollouts(f"run:{DEMO_RUN} split:train", limit=None):
        if half_of(str(row.task)) == half and row.step is not None:
            found.setdefault(row.step, []).append(row)  # type: ignore[arg-type]
    for step, rows in found.items():
        last: dict[Any, Any] = {}
        for row in rows:
            kept = last.get((row.group, row.index))
            if kept is None or (row.attempt or 0) > (kept.attempt or 0):
                last[row.group, row.index] = row
        wanted = sorted(last.values(), key=lambda row: (str(row.group), row.index))[: 8 * 8]
        found[step] = [str(row.id) for row in wanted]  # type: ignore[misc]
    whole = {
        str(stored.rollout.id): stored.rollout
        for stored in streamed(store.reader, [str(id) for ids in found.values() for id in ids])
    }
    return {step: [whole[str(id)] for id in ids] for step, ids in found.items()}


def _groups(rollouts: Iterable[Rollout]) -> list[list[Rollout]]:
    found: dict[Any, list[Rollout]] = {}
    for one in rollouts:
        if one.task is not None or one.group is not None:
            place = str((one.id or "").split("#")[0]) if one.run is None else ""
            found.setdefault((place, one.step, one.dataset, one.task, one.group), []).append(one)
    return list(found.values())


def fresh(one: Rollout) -> Rollout:
    """A copy that belongs to no run yet."""
    copy = deepcopy(one)
    copy.project = copy.run = copy.launch = copy.worker = None
    return copy


def planted_rollouts(
    plant: Plant, among: list[Rollout], most: int, tries: int = 4000
) -> Iterator[tuple[Rollout, Rollout]]:
    """Hosts with this fault, each beside what it was before."""
    draw = Random(f"{plant.check} {plant.how}")
    made = 0
    for host in draw.sample(among, len(among))[:tries]:
        if made >= most:
            return
        copy = fresh(host)
        if plant.plant(copy, draw):
            made += 1
            yield host, copy


def planted_groups(
    plant: Plant, among: list[list[Rollout]], size: int, most: int
) -> tuple[list[list[Rollout]], list[list[Rollout]]]:
    """The groups of a run, some of which have this fault; and of each of those the members in which
    it should be found. All come from one source, so that something is usual among them."""
    draw = Random(f"{plant.check} {plant.how}")
    by_source: dict[str, list[list[Rollout]]] = {}
    for group in among:
        by_source.setdefault(group[0].run or str(group[0].id).split("/")[0], []).append(group)
    best: tuple[list[list[Rollout]], list[list[Rollout]]] = ([], [])
    evenness = 0.0
    for groups in by_source.values():
        run: list[list[Rollout]] = []
        wrong: list[list[Rollout]] = []
        right = APART
        for host in draw.sample(groups, min(size, len(groups))):
            members = [fresh(one) for one in host[:8]]
            right += 1
            if len(wrong) < most and right > APART:
                clean = deepcopy(members)
                hit = plant.plant(members, draw)
                if hit:
                    wrong.append(hit)
                    right = 0
                else:
                    members = clean
            run.append(members)
        if (len(wrong), _evenness(groups)) > (len(best[1]), evenness):
            best, evenness = (run, wrong), _evenness(groups)
    return best


def _evenness(groups: list[list[Rollout]]) -> float:
    """The share of the groups that have the commonest size."""
    sizes = Counter(min(8, len(group)) for group in groups)
    return sizes.most_common(1)[0][1] / len(groups)


def planted_run(plant: Plant, steps: dict[int, list[Rollout]], at: int) -> Run | None:
    """The run, wrong from a step on; None: it is not fit for this fault."""
    draw = Random(f"{plant.check} {plant.how} {at}")
    run = Run({step: [fresh(one) for one in members] for step, members in steps.items()}, at)
    return run if plant.plant(run, draw) else None


def by_check(plants: Iterable[Plant]) -> Iterator[tuple[str, list[Plant]]]:
    for check, group in itertools.groupby(plants, key=lambda plant: plant.check):
        yield check, list(group)
