"""Answers about selections: lists, counts, facets, steps, tasks, fates."""

from __future__ import annotations

import math
import random
from typing import Any

from msgspec import convert

from ..adapters import HOW_TO_RECORD
from ..query import keys as query_keys
from ..query.overview import exactly
from ..query.selection import Selection
from . import params as p
from . import shapes as s
from .desk import Desk
from .rows import COLUMNS, FIELDS, columns, listed, number, thin
from .version import VERSION

DEFAULT_ORDER = "-step,group,task,dataset,environment,project,run,split,index"
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
    found = [convert(run, s.Run, from_attributes=True) for run in reversed(desk.store.runs())]
    for run in found:
        run.live = (run.project, run.run) in live
    return s.Runs(runs=found)


def rollouts(desk: Desk, ask: p.PageOf) -> s.Page:
    """A window of a selection, thin."""
    order, fields = ask.order or DEFAULT_ORDER, _fields(ask.columns)
    generation = desk.generation  # before anything is read: what comes later is news
    selection = desk.store.rollouts(ask.q, order=order, columns=columns(fields))
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
    return s.Page(
        rows=[listed(row, fields) for row in rows],
        at=at,
        count=matched,
        superseded=superseded,
        next=f"{reached}~{following}" if following else None,
        generation=generation,
    )


def _fields(asked: str) -> tuple[str, ...]:
    """The fields of a row that are asked for; `id` always is."""
    names = _names(asked)
    if unknown := [name for name in names if name not in FIELDS]:
        raise ValueError(f"no such column: {', '.join(unknown)} (known: {', '.join(FIELDS)})")
    return tuple(dict.fromkeys(("id", *names))) if names else FIELDS


def _counts(desk: Desk, selection: Selection) -> tuple[int, int]:
    """How many a query finds, and how many superseded ones it leaves out."""

    def make() -> tuple[int, int]:
        if not desk.keep(("replaced",), lambda: desk.store.rollouts("superseded:true").count()):
            return selection.count(), 0
        counts = selection.counts()
        return counts.matched, counts.superseded

    return desk.keep(("counts", selection.query.text), make)


def place(desk: Desk, ask: p.PlaceOf, id: str) -> s.Place:
    """Where a rollout stands in a selection: what a list scrolls to."""
    order = ask.order or DEFAULT_ORDER
    return s.Place(at=desk.store.rollouts(ask.q, order=order).place(desk.store.find(id)))


def start(desk: Desk, ask: p.Selection) -> s.Start:
    """Where to begin reading: the newest group with mixed rewards, else the newest rollout."""
    id = desk.store.mixed(ask.q)
    if id is None:
        for row in desk.store.rollouts(ask.q, order=DEFAULT_ORDER, limit=1, columns=("id",)):
            id = row.id
    return s.Start(id=id)


def any_one(desk: Desk, ask: p.Selection) -> s.Start:
    """A rollout of the selection, each as likely as any other."""
    selection = desk.store.rollouts(ask.q, order=DEFAULT_ORDER, columns=("id",))
    count, _ = _counts(desk, selection)
    if not count:
        return s.Start()
    at = random.randrange(count)
    found = list(selection[at : at + 1])
    return s.Start(id=found[0].id if found else None)


def facets(desk: Desk, ask: p.FacetsOf) -> s.Facets:
    """How often each value of these keys stands in a selection."""
    found = desk.store.facets(ask.q, _names(ask.keys), ask.limit)
    return s.Facets(facets=[_facet(facet) for facet in found])


def _facet(facet: Any) -> s.Facet:
    values = [s.Value(value=_word(v.value), count=v.count) for v in facet.values]
    if facet.missing and values:
        values.append(s.Value(value=None, count=facet.missing))
    return s.Facet(key=facet.key, values=values, more=facet.more)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def values(desk: Desk, ask: p.ValuesOf) -> s.Facet:
    """Values of a key that begin so, the commonest first: for completion."""
    found = desk.store.values(ask.key, ask.prefix)
    listed = [s.Value(value=_word(v.value), count=v.count) for v in found]
    return s.Facet(key=ask.key, values=listed)


def keys(_: Desk, __: p.Nothing) -> s.Keys:
    """Every key of the query language."""
    return s.Keys(
        keys=[s.Key(name=key.name, match=key.kind, doc=key.doc) for key in query_keys.KEYS.values()]
    )


def histograms(desk: Desk, ask: p.HistogramsOf) -> s.Histograms:
    """Histograms of these numbers over a selection."""
    found = desk.store.histograms(ask.q, _names(ask.keys), ask.bins)
    return s.Histograms(
        histograms=[
            s.Histogram(
                key=h.key,
                low=h.low,
                high=h.high,
                most=most,
                counts=h.counts if h.low is not None else [],
                missing=h.missing,
                not_finite=h.nan + h.infinite,
            )
            for h, most in ((_whole_bars(desk, ask, h), h.high) for h in found)
        ]
    )


def _whole_bars(desk: Desk, ask: p.HistogramsOf, found: Any) -> Any:
    """Whole numbers in bars of whole width: otherwise some bars hold one number, some two."""
    key = query_keys.KEYS.get(found.key)
    if key is None or not key.whole or found.low is None:
        return found
    numbers = int(found.high - found.low) + 1
    per = math.ceil(numbers / ask.bins)
    bars = math.ceil(numbers / per)
    return desk.store.histogram(ask.q, found.key, bars, found.low, found.low + per * bars)


def ribbon(desk: Desk, ask: p.RibbonOf) -> s.Ribbon:
    """Each step of each run and split in numbers, and the metrics that were logged."""
    lanes: dict[tuple[str, str, str | None], s.RibbonRun] = {}
    for step in desk.store.ribbon(ask.q):
        key = (step.project or "", step.run or "", step.split)
        if key not in lanes:
            lanes[key] = s.RibbonRun(project=key[0], run=key[1], split=key[2], steps=[])
        low, high = (step.quantiles[0], step.quantiles[-1]) if step.quantiles else (None, None)
        lanes[key].steps.append(
            s.StepColumn(
                step=step.step,
                rollouts=step.count,
                mean=number(step.reward),
                low=number(low),
                high=number(high),
                truncated=step.truncated,
                errors=step.errors,
                groups=step.groups,
                dead=step.dead_groups,
                scored=step.rewarded,
                length=number(step.response_tokens),
            )
        )
    ordered = sorted(lanes.values(), key=lambda lane: -len(lane.steps))
    for lane in ordered[:6]:
        lane.metrics = _metrics(desk, lane, ask.metrics)
    return s.Ribbon(runs=ordered)


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
    rows = [row for row in map(_task, found) if ask.kind in ("", row.kind)]
    rows = _sorted(rows, ask.order)
    window = rows[ask.at : ask.at + ask.limit]
    _add_previews(desk, window)
    return s.Tasks(tasks=window, count=len(rows))


def _task(task: Any) -> s.TaskRow:
    return s.TaskRow(
        task=task.task,
        dataset=task.dataset,
        rollouts=task.count,
        steps=task.steps,
        first_step=task.first_step,
        last_step=task.last_step,
        first_rate=task.first_rate,
        last_rate=task.last_rate,
        best_rate=task.best_rate,
        flips=task.flips,
        kind=task.kind,
    )


_TASK_ORDERS = {*s.TaskRow.__struct_fields__, "change"}


def _sorted(rows: list[s.TaskRow], order: str) -> list[s.TaskRow]:
    name, down = order.removeprefix("-"), order.startswith("-")
    if name not in _TASK_ORDERS:
        raise ValueError(f"tasks cannot be sorted by {name!r}: {', '.join(sorted(_TASK_ORDERS))}")

    def value(row: s.TaskRow) -> Any:
        if name == "change":
            if row.first_rate is None or row.last_rate is None:
                return None
            return float(row.last_rate) - float(row.first_rate)
        return getattr(row, name)

    known = [row for row in rows if value(row) is not None]
    unknown = [row for row in rows if value(row) is None]
    return sorted(known, key=value, reverse=down) + unknown


def _add_previews(desk: Desk, rows: list[s.TaskRow]) -> None:
    previews = desk.store.task_previews([row.task for row in rows])
    for row in rows:
        row.preview = (previews.get((row.dataset, row.task)) or "")[:300] or None


def history(desk: Desk, ask: p.HistoryOf) -> s.History:
    """One task: every rollout of it, by run, step and place."""
    terms = exactly("task", ask.task)
    if ask.dataset is not None:
        terms += " " + exactly("dataset", ask.dataset)
    q = f"({ask.q}) {terms}" if ask.q.strip() else terms
    selection = desk.store.rollouts(
        q, order="run,split,step,index", limit=ask.limit, columns=(*COLUMNS, "reference")
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


def funnel(desk: Desk, ask: p.Selection) -> s.Funnel:
    """generated → scored → kept → trained, and where each rollout ended; counts add up."""
    stages = desk.store.funnel(ask.q)
    ends: dict[str, s.Bar] = {}
    for fate, reason, count in desk.store.fates(ask.q):
        name = fate or "fate not known"
        q = _fate_term("fate", fate)
        end = ends.setdefault(name, s.Bar(name=name, count=0, q=q))
        end.count += count
        if reason is not None:
            q += " " + _fate_term("fate_reason", reason)
            end.reasons.append(s.Bar(name=reason, count=count, q=q))
    total = stages[0].count if stages else 0
    bars = [
        s.Bar(
            name=stage.name,
            count=stage.count,
            q=stage.query,
            reasons=[
                s.Bar(name=loss.reason or loss.fate or "not known", count=loss.count, q=loss.query)
                for loss in stage.lost
            ],
        )
        for stage in stages
    ]
    return s.Funnel(
        total=total, stages=bars, ends=sorted(ends.values(), key=lambda bar: -bar.count)
    )


def _fate_term(key: str, value: str | None) -> str:
    return f"{key}:none" if value is None else exactly(key, value)


def failures(desk: Desk, ask: p.Selection) -> s.Failures:
    """Failures by whose fault they were, each with an example."""
    found = desk.store.failures(ask.q, 1)
    examples = {id for failure in found[:100] for id in failure.examples}
    rows = {}
    if examples:
        ids = ",".join(f'"{id}"' for id in sorted(examples))
        rows = {row.id: thin(row) for row in desk.store.rollouts(f"id:{ids}", columns=COLUMNS)}
    kinds: dict[str, s.Bar] = {}
    for failure in found:
        name = failure.kind or "not known"
        q = _kind_term(failure.kind) if failure.kind else "has:error error_kind:none"
        if failure.kind == "limit":
            q = "(error_kind:limit OR (truncated:true error:none))"
        kinds.setdefault(name, s.Bar(name=name, count=0, q=q)).count += failure.count
    total, _ = _counts(desk, desk.store.rollouts(ask.q))
    return s.Failures(
        total=total,
        kinds=sorted(kinds.values(), key=lambda bar: -bar.count),
        failures=[
            s.Failure(
                kind=failure.kind,
                type=failure.type,
                count=failure.count,
                q=failure.query,
                example=rows.get(failure.examples[0]) if failure.examples else None,
                text=failure.text[:4000] if failure.text else failure.text,
                first_step=failure.first_step,
                last_step=failure.last_step,
            )
            for failure in found[:100]
        ],
    )


def _kind_term(kind: str) -> str:
    """As a person would type it, where that means the same."""
    plain = kind.isidentifier() and kind.lower() != "none"
    return f"error_kind:{kind}" if plain else exactly("error_kind", kind)


NAMES = 40
"""Fields of one question: the engine counts up to 64 at once."""


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > NAMES:
        raise ValueError(f"at most {NAMES} names, not {len(names)}")
    return names
