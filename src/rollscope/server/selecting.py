"""Answers about selections: lists, counts, facets, steps, tasks, fates."""

from __future__ import annotations

import random
import re
from typing import Any

from msgspec import convert
from msgspec.structs import asdict, astuple

from ..adapters import HOW_TO_RECORD
from ..checks.counts import counts
from ..model.grouping import ORDER as GROUP_ORDER
from ..query import keys as query_keys
from ..query.keys import Asked
from ..query.matrix import Matrix
from ..query.named import NAMED
from ..query.overview import StepNumbers
from ..query.selection import Selection
from ..query.store import Store
from ..query.tasks import ordered
from . import params as p
from . import shapes as s
from .desk import Desk
from .rows import COLUMNS, FIELDS, columns, listed, number, thin
from .version import VERSION

DEFAULT_ORDER = f"-step,{GROUP_ORDER},project,run,split,index"
"""Newest step first, group by group. Siblings stand together even if several runs, or tasks of
several datasets, have the same name."""


def status(desk: Desk, _: p.Nothing) -> s.Status:
    """What this server is and may."""
    rollouts = desk.keep(("total",), lambda: desk.store.rollouts("").count())
    return s.Status(
        version=VERSION,
        generation=desk.generation,
        rollouts=rollouts,
        can_label=desk.can_label,
        dir=desk.dir,
        empty_help=[] if rollouts else list(HOW_TO_RECORD),
    )


def runs(desk: Desk, _: p.Nothing) -> s.Runs:
    """Every run, the one last written to first."""
    live = desk.store.live_runs()
    found = [convert(run, s.ListedRun, from_attributes=True) for run in reversed(desk.store.runs())]
    for run in found:
        run.live = (run.project, run.run) in live
    return s.Runs(runs=found)


def rollouts(desk: Desk, ask: p.PageOf) -> s.ListedPage:
    """A window of a selection, thin."""
    order, (fields, named) = ask.order or DEFAULT_ORDER, _fields(ask.columns)
    generation = desk.generation  # before anything is read: what comes later is news
    selection = desk.store.rollouts(ask.q, order=order, columns=columns(fields, named))
    matched, superseded = _counts(desk, selection)
    at, after = ask.at, None
    if ask.cursor:
        place, _, after = ask.cursor.partition("~")
        at = int(place) if place.isdigit() else 0
    if after or at == 0:
        page = selection.page(ask.limit, after or None)
        rows, following = page.rows, page.next
    else:
        rows = list(selection[at : at + ask.limit])
        following = None
    reached = at + len(rows)
    return s.ListedPage(
        rows=[listed(row, fields, named) for row in rows],
        at=at,
        count=matched,
        superseded=superseded,
        next=f"{reached}~{following}" if following else None,
        generation=generation,
    )


def _fields(asked: str) -> tuple[tuple[str, ...], dict[str, Asked]]:
    """The fields of a row that are asked for, and the keys of the user's own; `id` always is."""
    names = _names(asked)
    others = {name: query_keys.named(name) for name in names if name not in FIELDS}
    named = {name: key for name, key in others.items() if key and key.key.name in NAMED}
    if unknown := [name for name in others if name not in named]:
        raise ValueError(f"no such column: {', '.join(unknown)} (known: {', '.join(FIELDS)})")
    fields = tuple(dict.fromkeys(("id", *(name for name in names if name not in named))))
    return (fields if names else FIELDS), named


def _counts(desk: Desk, selection: Selection) -> tuple[int, int]:
    """How many a query finds, and how many superseded ones it leaves out."""

    def make() -> tuple[int, int]:
        if not desk.keep(("replaced",), lambda: desk.store.rollouts("superseded:true").count()):
            return selection.count(), 0
        counts = selection.counts()
        return counts.matched, counts.superseded

    return desk.keep(("counts", selection.query.text), make)


def place(desk: Desk, ask: p.PlaceOf, id: str) -> s.PlaceInList:
    """Where a rollout stands in a selection: what a list scrolls to."""
    order = ask.order or DEFAULT_ORDER
    return s.PlaceInList(at=desk.store.rollouts(ask.q, order=order).place(desk.store.find(id)))


def start(desk: Desk, ask: p.SelectionOf) -> s.Start:
    """Where to begin reading: the newest group with mixed rewards, else the newest rollout."""
    id = desk.store.mixed(ask.q)
    if id is None:
        for row in desk.store.rollouts(ask.q, order=DEFAULT_ORDER, limit=1, columns=("id",)):
            id = row.id
    return s.Start(id=id)


def any_one(desk: Desk, ask: p.AnyOneOf) -> s.Start:
    """A rollout of the selection, each as likely as any other; `but` only where it is alone."""
    selection = desk.store.rollouts(ask.q, order=DEFAULT_ORDER, columns=("id",))
    count, _ = _counts(desk, selection)
    if not count:
        return s.Start()
    at = random.randrange(count)
    found = list(selection[at : at + 1])
    if found and found[0].id == ask.but and count > 1:
        at = (at + random.randrange(1, count)) % count
        found = list(selection[at : at + 1])
    return s.Start(id=found[0].id if found else None)


def facets(desk: Desk, ask: p.FacetsOf) -> s.Facets:
    """How often each value of these keys stands in a selection."""
    found = desk.store.facets(ask.q, _names(ask.keys), ask.limit)
    return s.Facets(facets=[_facet(facet) for facet in found])


def _facet(facet: Any) -> s.ShownFacet:
    values = [s.ShownValue(value=_word(v.value), count=v.count) for v in facet.values]
    if facet.missing and values:
        values.append(s.ShownValue(value=None, count=facet.missing))
    return s.ShownFacet(key=facet.key, values=values, more=facet.more)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def values(desk: Desk, ask: p.ValuesOf) -> s.ShownFacet:
    """Values of a key that begin so, the commonest first: for completion."""
    found = desk.store.values(ask.key, ask.prefix)
    listed = [s.ShownValue(value=_word(v.value), count=v.count) for v in found]
    return s.ShownFacet(key=ask.key, values=listed)


def keys(_: Desk, __: p.Nothing) -> s.Keys:
    """Every key of the query language."""
    known = query_keys.KEYS.values()
    return s.Keys(keys=[s.ListedKey(name=k.name, match=k.kind, doc=k.doc) for k in known])


def names(desk: Desk, ask: p.SelectionOf) -> s.Names:
    """The keys below `rewards.` and `meta.` that rollouts of a selection have."""
    return s.Names(names=desk.keep(("names", ask.q), lambda: desk.store.named_keys(ask.q)))


def histograms(desk: Desk, ask: p.HistogramsOf) -> s.Histograms:
    """Histograms of these numbers over a selection."""
    return s.Histograms(histograms=desk.store.histograms(ask.q, _names(ask.keys), ask.bins))


def ribbon(desk: Desk, ask: p.RibbonOf) -> s.Ribbon:
    """Each step of each run and split in numbers, and the metrics that were logged."""
    lanes: dict[tuple[str | None, ...], s.RibbonRun] = {}
    for step in desk.store.ribbon(ask.q):
        lane = s.RibbonRun(project=step.project or "", run=step.run or "", split=step.split)
        lane = lanes.setdefault((lane.project, lane.run, lane.split), lane)
        lane.steps.append(convert(step, StepNumbers, from_attributes=True))
    longest = sorted(lanes.values(), key=lambda lane: -len(lane.steps))
    for lane in longest[:6]:
        lane.metrics = _metrics(desk, lane, ask.metrics)
        lane.alarms = _alarms(desk, lane)
    return s.Ribbon(runs=longest)


def _alarms(desk: Desk, lane: s.RibbonRun) -> list[s.Alarm]:
    """What checks found in the steps of a lane."""
    of_run = desk.keep(
        ("alarms", lane.project, lane.run), lambda: alarms(desk.store, lane.project, lane.run)
    )
    steps = {step.step for step in lane.steps}
    return [alarm for alarm in of_run if alarm.split == lane.split and alarm.step in steps]


def alarms(store: Store, project: str | None, run: str) -> list[s.Alarm]:
    """What checks found in the steps of a run."""
    found = store.alarms(run, project or None)
    return [convert(alarm, s.Alarm, from_attributes=True) for alarm in found]


def _metrics(desk: Desk, lane: s.RibbonRun, wanted: str) -> dict[str, list[tuple[int, s.Number]]]:
    """Names of all the metrics of a run; values only of those asked for."""
    series = desk.keep(
        ("metrics", lane.project, lane.run),
        lambda: desk.store.metrics(lane.run, lane.project or None),
    )
    chosen = set(_names(wanted))
    return {
        name: [(step, number(value)) for step, value in points] if name in chosen else []
        for name, points in series.items()
    }


def tasks(desk: Desk, ask: p.TasksOf) -> s.Tasks:
    """Tasks over time, by kind, sorted."""
    found = desk.keep(("tasks", ask.q), lambda: desk.store.tasks(ask.q, limit=100_000), 4)
    rows = ordered((task for task in found if ask.kind in ("", task.kind)), ask.order)
    window = desk.store.with_previews(rows[ask.at : ask.at + ask.limit])
    runs = desk.keep(("task runs", ask.q), lambda: desk.store.matrix(ask.q, "run", limit=0))
    return s.Tasks(tasks=window, count=len(rows), runs=len(runs.columns) + runs.left_out)


def matrix(desk: Desk, ask: p.MatrixOf) -> Matrix:
    """Tasks against runs, ranges of steps or the values of another key, a window of tasks."""
    asked = asdict(ask)
    q = asked.pop("q")
    return desk.keep(("matrix", *astuple(ask)), lambda: desk.store.matrix(q, **asked), 16)


def history(desk: Desk, ask: p.HistoryOf) -> s.History:
    """One task: every rollout of it, by run, step and place."""
    selection = desk.store.task_history(
        ask.task, ask.dataset, ask.q, limit=ask.limit, columns=(*COLUMNS, "reference")
    )
    found = list(selection)
    rows = [thin(row) for row in found]
    return s.History(
        task=ask.task,
        dataset=ask.dataset,
        rows=rows,
        count=selection.count(),
        preview=next((row.prompt_preview for row in rows if row.prompt_preview), None),
        reference=next((row.reference for row in found if row.reference is not None), None),
    )


def funnel(desk: Desk, ask: p.SelectionOf) -> s.Funnel:
    """generated → scored → kept → trained, and where each rollout ended; counts add up."""
    stages = desk.store.funnel(ask.q)
    return s.Funnel(total=stages[0].count, stages=stages, ends=desk.store.fates(ask.q))


def failures(desk: Desk, ask: p.SelectionOf) -> s.Failures:
    """Failures by whose fault they were, each with an example."""
    found = desk.store.failures(ask.q, 1)
    ids = ",".join(f'"{id}"' for failure in found[:100] for id in failure.examples)
    rows = desk.store.rollouts(f"id:{ids}", columns=COLUMNS) if ids else ()
    examples = {row.id: thin(row) for row in rows}
    total, _ = _counts(desk, desk.store.rollouts(ask.q))
    shown = []
    for failure in found[:100]:
        (id,) = failure.examples
        told = asdict(failure) | {"text": failure.text and failure.text[:4000]}
        shown.append(s.ShownFailure(**told, example=examples.get(id)))
    kinds = desk.store.failure_kinds(found, ask.q)
    return s.Failures(total=total, kinds=kinds, failures=shown)


def findings(desk: Desk, ask: p.SelectionOf) -> s.Checks:
    """What each check found in a selection, the worst first."""
    total, _ = _counts(desk, desk.store.rollouts(ask.q))
    made = desk.keep(("checks", ask.q), lambda: counts(desk.store, ask.q))
    return s.Checks(total=total, checks=made)


NAMES = 40
"""Fields of one question: the engine counts up to 64 at once."""


_NAME = re.compile(r'(?:[^,"]|"(?:\\.|[^"\\])*")+')
"""A comma in quotes belongs to a name."""


def _names(text: str) -> list[str]:
    found = (name.strip() for name in _NAME.findall(text))
    names = list(dict.fromkeys(name for name in found if name))
    if len(names) > NAMES:
        raise ValueError(f"at most {NAMES} names, not {len(names)}")
    return names
