"""Checks look at what a real trainer's run recorded. A clean run is silent; whatever is then broken
in a longer copy of it, they name. Faults are planted by `tests/checks/planting`, which knows no
check."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from random import Random

import rollscope
from rollscope import Rollout
from rollscope.checks import scan
from rollscope.checks.registry import ours
from rollscope.store.read.stream import streamed

# Some trainers' environments have a package with the name `tests`.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from checks.planting import Plant, all_planted
from checks.planting.hosts import fresh
from checks.planting.steps import Run

STEPS = 12
"""Of the copy: enough to tell what is usual."""
HERE = 7
"""The step that is wrong."""
EACH = 2
"""Variants of a fault that are planted."""


CHANCE = "group.dead"
"""Rewards in these tests are made of what a random model says. Siblings may have the same."""


def silent(root: Path) -> set[str]:
    """Nothing is found. Gives the checks of the record that could look."""
    store = rollscope.open(root)
    assert scan(store).broken == {}
    found = {f.check: f.text for f in store.findings() if f.check != CHANCE}
    assert found == {}, found
    return {
        count.check
        for count in store.findings().counts()
        if count.clear and ours()[count.check].kind == "record"
    }


def named_faults(root: Path, folder: Path) -> set[str]:
    """Faults of the record are planted, as far as they fit; a check that can look finds them. Gives
    the checks that found one."""
    store = rollscope.open(root)
    (row, *_) = store.runs()
    algorithm = store.algorithm(row.run, project=row.project)
    ids = [str(r.id) for r in store.rollouts("-split:eval", limit=None)]
    steps = _longer([stored.rollout for stored in streamed(store.reader, ids)])
    planted: dict[str, dict[Plant, set[str]]] = {}
    for n, (plants, rollouts) in enumerate(_planted(steps)):
        planted[f"{n}"] = plants
        with rollscope.init(project="planted", run=f"{n}", dir=folder) as run:
            if algorithm is not None:
                run.note_algorithm(algorithm)
            run.log(rollouts)
    found, unobserved = _answers(folder)
    named, lost = set(), []
    for run, plants in planted.items():
        for plant, places in plants.items():
            answers = {(run, plant.check, place) for place in places}
            if answers & found:
                named.add(plant.check)
            elif not answers & unobserved:
                lost.append(f"{plant.check}: {plant.how}")
    assert lost == [], lost
    return named


Answers = set[tuple[str, str, str]]
"""Runs, checks, and the keys of rollouts, or steps."""


def _answers(folder: Path) -> tuple[Answers, Answers]:
    """What was found, and what could not be looked at."""
    store = rollscope.open(folder)
    assert scan(store).broken == {}
    keys = {str(row.id): str(row.key) for row in store.rollouts(limit=None)}
    sql = "SELECT run, rollout, step, found, unobserved FROM flags.rows"
    answers: tuple[Answers, Answers] = set(), set()
    for run, id, step, *told in store.reader.reading(lambda db: db.execute(sql).fetchall()):
        place = f"step {step}" if id is None else keys[id]
        for said, checks in zip(answers, told, strict=True):
            said.update((run, check, place) for check in checks or ())
    return answers


def _longer(rollouts: Iterable[Rollout]) -> dict[int, list[Rollout]]:
    """The same steps again and again, as if the run had gone on."""
    by_step: dict[int, list[Rollout]] = {}
    for one in rollouts:
        by_step.setdefault(one.step or 0, []).append(one)
    assert by_step
    made: dict[int, list[Rollout]] = {}
    for again in count():
        for n, (step, members) in enumerate(sorted(by_step.items())):
            later = again * len(by_step) + n - step
            made[step + later] = [_later(one, again, later) for one in members]
            if len(made) == STEPS:
                return made
    raise AssertionError


def _later(one: Rollout, again: int, steps: int) -> Rollout:
    made = fresh(one)
    made.id, made.key, made.step, made.split = None, f"{again}/{one.key}", (one.step or 0), "train"
    made.step += steps
    if made.group is not None:
        made.group = f"{again}/{one.group}"
    if made.trained_step is not None:
        made.trained_step += steps
    if made.policy_version is not None:
        made.policy_version += steps
    for message in made.messages:
        versions = message.tokens.streams.get("version") if message.tokens is not None else None
        if versions is not None:
            message.tokens.streams["version"] = [
                v if v is None or v < 0 else v + steps for v in versions
            ]
    return made


Planted = tuple[dict[Plant, set[str]], list[Rollout]]
"""Faults, with the keys or steps in which each is to be found; and the rollouts of the run."""


def _planted(steps: dict[int, list[Rollout]]) -> Iterator[Planted]:
    """Runs with faults in them: one with all faults of rollouts, and one for each other fault."""
    places: dict[Plant, set[str]] = {}
    alone: list[Rollout] = []
    done: Counter[str] = Counter()
    for plant in all_planted():
        check = ours()[plant.check]
        if check.kind != "record" or check.off or done[check.id] == EACH:
            continue
        if check.subject == "rollout":
            one = _in_rollout(plant, steps)
            if one is None:
                continue
            one.key = one.task = f"planted {len(alone)}"
            one.group, one.split = None, "planted"
            alone.append(one)
            places[plant] = {one.key}
        else:
            made = (_in_group if check.subject == "group" else _in_run)(plant, steps)
            if made is None:
                continue
            yield made
        done[check.id] += 1
    yield places, alone


def _in_rollout(plant: Plant, steps: dict[int, list[Rollout]]) -> Rollout | None:
    for host in _all(steps):
        one = deepcopy(host)
        if plant.plant(one, Random(plant.how)):
            return one
    return None


def _in_group(plant: Plant, steps: dict[int, list[Rollout]]) -> Planted | None:
    for host in _groups(one for step in range(HERE, STEPS) for one in steps[step]):
        members = deepcopy(host)
        hit = plant.plant(members, Random(plant.how))
        if hit:
            for one in members if plant.check == "task.collapsed" else ():
                one.group = None
            mine = {one.key for one in host}
            rest = [one for one in _all(steps) if one.key not in mine]
            return {plant: {str(one.key) for one in hit}}, [*deepcopy(rest), *members]
    return None


def _in_run(plant: Plant, steps: dict[int, list[Rollout]]) -> Planted | None:
    run = Run(deepcopy(steps), HERE)
    if not plant.plant(run, Random(plant.how)):
        return None
    return {plant: {f"step {step}" for step in range(HERE, STEPS)}}, _all(run.steps)


def _groups(rollouts: Iterable[Rollout]) -> list[list[Rollout]]:
    found: dict[tuple[str, ...], list[Rollout]] = {}
    for one in rollouts:
        found.setdefault((str(one.step), str(one.group), str(one.task)), []).append(one)
    return list(found.values())


def _all(steps: dict[int, list[Rollout]]) -> list[Rollout]:
    return [one for members in steps.values() for one in members]
