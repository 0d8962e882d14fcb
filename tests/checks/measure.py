"""How many planted faults each check finds, and what it finds in real rollouts: `make checks`.

    python -m tests.checks.measure DEMO          # a store with the demo, made if there is none
    python -m tests.checks.measure DEMO group    # only this part: rollout, group, step or clean
    python -m tests.checks.measure DEMO group tuned

Writes `measured.json`, from which `docs/generate.py` makes the table in docs/checks.md. Needs the
real rollouts that `corpus` names, and takes some minutes. What is tuned is tuned on one half of the
files; the other half is reported.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

import rollscope
from rollscope.checks import OneRollout, Settings, scan
from rollscope.checks.look import Panel
from rollscope.checks.registry import ours

from . import gaming
from .corpus import Half, real
from .planting import Plant, all_planted
from .planting.hosts import (
    DEMO_RUN,
    Hosts,
    half_of,
    hosts,
    planted_groups,
    planted_rollouts,
    planted_run,
)

HERE = Path(__file__).parent
MEASURED, JUDGED = HERE / "measured.json", HERE / "judged.toml"
HALF: Half = "held out"
"""The half that is reported."""

EACH = 12
"""Hosts of each variant."""
GROUPS, WRONG = 40, 2
"""Groups of a run that faults of groups are planted into, and how many of them are wrong: what
nearly all groups have in common is what the checks go by."""
AT = 16
"""Step from which a run is wrong."""
LATE = 8
"""Steps within which an alarm must come."""

Found = dict[str, tuple[int, int]]
"""Found of planted, by variant."""


def everything(*subjects: str) -> Settings:
    """All checks of these subjects, those that are off by default too."""
    checks = {id: c._replace(off="") for id, c in ours().items() if c.subject in subjects}
    return Settings(Path("/nonexistent"), checks)


def panel_of(id: str) -> Panel:
    return Panel(bound for bound in everything("rollout").bound("") if bound.check.id == id)


# -- planted -------------------------------------------------------------------------------


def in_rollouts(plant: Plant, among: Hosts, each: int = EACH) -> tuple[int, int]:
    """A host in which the check finds something of itself is none."""
    panel = panel_of(plant.check)
    found = of = 0
    for before, after in planted_rollouts(plant, among.rollouts, 3 * each):
        if of < each and not panel.rollout(OneRollout(before))[0].found:
            of += 1
            found += bool(panel.rollout(OneRollout(after))[0].found)
    return found, of


def in_groups(plants: list[Plant], among: Hosts) -> dict[Plant, tuple[int, int]]:
    """Each in a run of its own, all in one store."""
    hits: dict[Plant, list[list[str]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for n, plant in enumerate(plants):
            groups, wrong = planted_groups(plant, among.groups, GROUPS, WRONG)
            for g, members in enumerate(groups):
                for i, one in enumerate(members):
                    one.id, one.key, one.step, one.split = None, f"{n}/{g}/{i}", g, "train"
                    mark = "+" * str(one.group).count("+")  # of copies in groups of their own
                    one.group = f"{g}{mark}" if plant.check != "task.collapsed" else None
                    one.task = one.task or f"task {g}"
            hits[plant] = [[str(one.key) for one in members] for members in wrong]
            _log(Path(root), f"{n}", [one for members in groups for one in members])
        store = rollscope.open(root)
        _scan(store, everything("rollout", "group"))
        flagged = _flagged(store)
    return {
        plant: (sum(any((plant.check, key) in flagged for key in keys) for keys in groups),
                len(groups))
        for plant, groups in hits.items()
    }  # fmt: skip


def in_runs(plants: list[Plant], among: Hosts) -> dict[Plant, tuple[int, int]]:
    """An alarm must come within some steps, where the run as it was had none."""
    told = dict.fromkeys(plants, (0, 0))
    with tempfile.TemporaryDirectory() as root:
        made: dict[str, Plant | None] = {}
        for n, plant in enumerate([None, *plants]):
            run = None if plant is None else planted_run(plant, among.run, AT)
            if plant is not None and run is None:
                continue
            made[f"{n}"] = plant
            for step, members in (among.run if run is None else run.steps).items():
                for i, one in enumerate(members):
                    one.id, one.key, one.step, one.split = None, f"{n}/{step}/{i}", step, "train"
                    one.project = one.run = one.launch = None
            steps = among.run if run is None else run.steps
            _log(Path(root), f"{n}", [one for members in steps.values() for one in members])
        store = rollscope.open(root)
        _scan(store, everything("step"))
        alarms = {(str(f.run), f.check, f.step) for f in store.findings() if f.subject == "step"}
    for name, plant in made.items():
        if plant is not None:
            is_told = any(
                (name, plant.check, step) in alarms and ("0", plant.check, step) not in alarms
                for step in range(AT, AT + LATE + 1)
            )
            told[plant] = int(is_told), 1
    return told


def _log(root: Path, name: str, rollouts: list[rollscope.Rollout]) -> None:
    with (
        contextlib.redirect_stderr(io.StringIO()),
        rollscope.init(project="planted", run=name, dir=root) as run,
    ):
        for one in rollouts:
            run.log(one)


def _scan(store: rollscope.Store, settings: Settings, query: str = "") -> None:
    report = scan(store, query, settings=settings)
    assert not report.broken, report.broken


def _flagged(store: rollscope.Store) -> set[tuple[str, str]]:
    """Checks, and the keys of the rollouts in which they found something."""
    keys = {str(row.id): str(row.key) for row in store.rollouts("has:flag", limit=None)}
    return {(f.check, keys[str(f.rollout)]) for f in store.findings() if f.rollout is not None}


# -- real ----------------------------------------------------------------------------------


Counts = dict[str, dict[str, int]]
"""By check: looked at, found, not judged true, unobserved."""

TOGETHER = ("nemo-gym", "swe-agent", "tgi-snapshots", "inspect-reward-hacking/rollouts_temp")
"""Sources with few rollouts a file: all of it stands in one run."""


def as_they_are(root: Path, demo: Path) -> Counts:
    """What checks find where nothing was planted, and how much of it nobody has judged true."""
    for name, found in groupby(real(), key=lambda one: _run_of(one.file)):
        rollouts = []
        for one in found:
            if one.half == HALF:
                one.rollout.key, one.rollout.id = one.rollout.id, None
                one.rollout.split = one.file  # what is usual in one file is not in another
                one.rollout.step = one.rollout.step or 0
                rollouts.append(one.rollout)
        if rollouts:
            _log(root, name, rollouts)
    counts: Counts = {id: {"looked": 0, "found": 0, "false": 0, "unobserved": 0} for id in ours()}
    given, trained = rollscope.open(root), rollscope.open(demo)
    for store, query in ((given, ""), (trained, f"run:{DEMO_RUN}")):
        _scan(store, everything("rollout", "group", "step"), query)
        _count_rollouts(store, query, counts)
    for count in trained.findings(f"run:{DEMO_RUN}").counts():
        if count.subject == "step":
            of = counts[count.check]
            of["looked"] += count.found + count.clear
            of["found"] += count.found
            of["false"] += count.found
            of["unobserved"] += count.unobserved
    return counts


def _run_of(file: str) -> str:
    return next((name for name in TOGETHER if file.startswith(name)), file)


def _count_rollouts(store: rollscope.Store, query: str, counts: Counts) -> None:
    judged = judgements()
    sql = "SELECT rollout, found, unobserved FROM flags.rows WHERE rollout IS NOT NULL"
    found: dict[str, set[str]] = {}
    unobserved: dict[str, set[str]] = {}
    for id, some, none in store.reader.reading(lambda db: db.cursor().execute(sql).fetchall()):
        found.setdefault(id, set()).update(some or ())
        unobserved.setdefault(id, set()).update(none or ())
    of_rollouts = [id for id, check in ours().items() if check.subject != "step"]
    for row in store.rollouts(query, limit=None):
        if query and half_of(str(row.task)) != HALF:
            continue
        for check in of_rollouts:
            if check in unobserved.get(str(row.id), ()):
                counts[check]["unobserved"] += 1
                continue
            counts[check]["looked"] += 1
            if check in found.get(str(row.id), ()):
                counts[check]["found"] += 1
                name = f"demo/{row.key}" if query else str(row.key)
                counts[check]["false"] += not is_true(judged, check, name)


Judged = dict[str, dict[str, str]]


def judgements() -> Judged:
    """Findings in real rollouts that somebody has read and calls true, with the reason."""
    return dict(tomllib.loads(JUDGED.read_text())) if JUDGED.exists() else {}


def is_true(judged: Judged, check: str, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in judged.get(check, ()))


# -- all -----------------------------------------------------------------------------------


def planted(subject: str, half: Half, demo: Path) -> dict[str, Found]:
    """What was found of faults planted into rollouts, groups or runs."""
    among = hosts(half, demo)
    plants = [p for p in all_planted() if ours()[p.check].subject == subject]
    if subject == "rollout":
        counted = {p: in_rollouts(p, among) for p in plants}
    else:
        counted = in_groups(plants, among) if subject == "group" else in_runs(plants, among)
    found: dict[str, Found] = {}
    for plant, numbers in counted.items():
        found.setdefault(plant.check, {})[plant.how] = numbers
    print(*_words(found), sep="\n")
    return found


def keep(measured: dict[str, dict[str, Any]]) -> None:
    """Numbers of some checks, beside those that are known of the same version."""
    gamed = gaming.measured()  # takes a while: another part may write meanwhile
    known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    checks = {id: of for id, of in known.get("checks", {}).items() if id in ours()}
    for id, numbers in measured.items():
        version = {"version": ours()[id].version}
        had = checks.get(id, {})
        checks[id] = (had if had.get("version") == version["version"] else {}) | version | numbers
    told = {"checks": checks, "gaming": gamed}
    MEASURED.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def with_demo(path: Path) -> Path:
    if not (path / "demo").exists():
        from rollscope import demo

        demo.run(dir=path)
    return path


def _words(found: dict[str, Found]) -> Iterator[str]:
    for id, hows in found.items():
        n, of = sum(n for n, _ in hows.values()), sum(of for _, of in hows.values())
        missed = {how: f"{n}/{of}" for how, (n, of) in hows.items() if n < of or not of}
        yield f"{id:24} {n:4} of {of:4}  {missed or ''}"


PARTS = ("rollout", "group", "step", "clean")


def main(demo: Path, part: str = "", half: Half = HALF) -> None:
    """One part of the measurement, or all. With the other half, it only tells."""
    demo = with_demo(demo)
    for one in [part] if part else PARTS:
        if one == "clean":
            with tempfile.TemporaryDirectory() as root:
                keep({id: dict(of) for id, of in as_they_are(Path(root), demo).items()})
            continue
        found = planted(one, half, demo)
        if half == HALF:
            keep({id: {"planted": hows} for id, hows in found.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])  # type: ignore[arg-type]
