"""Every route of the API: the one table that requests, the OpenAPI description and the
viewer's types follow."""

from __future__ import annotations

from . import comparing, reading, selecting, streams
from . import params as p
from . import shapes as s
from .desk import Desk
from .table import Route


def label(desk: Desk, _: p.Nothing, body: s.Label) -> s.Done:
    """Set or take back a label, or write a note."""
    if not desk.can_label:
        raise PermissionError("labels cannot be written here; start with --allow-labels")
    if not body.label and not body.note:
        raise ValueError("give a label or a note")
    row = desk.opened(body.rollout).row
    if body.message is not None and body.message >= (known := len(desk.outline(row.id))):
        raise ValueError(f"the rollout has {known} messages, counted from 0")
    desk.labels.write(row, body)
    return s.Done()


ROUTES = (
    Route("GET", "/api/status", selecting.status, p.Nothing, s.Status, "What this server is."),
    Route("GET", "/api/runs", selecting.runs, p.Nothing, s.Runs, "Every run."),
    Route("GET", "/api/rollouts", selecting.rollouts, p.PageOf, s.Page, "A window of a selection."),
    Route("GET", "/api/start", selecting.start, p.Selection, s.Start, "Where to begin reading."),
    Route("GET", "/api/random", selecting.any_one, p.Selection, s.Start, "A random rollout."),
    Route("GET", "/api/facets", selecting.facets, p.FacetsOf, s.Facets, "Counts per value."),
    Route(
        "GET", "/api/histograms", selecting.histograms, p.HistogramsOf, s.Histograms, "Histograms."
    ),
    Route("GET", "/api/ribbon", selecting.ribbon, p.RibbonOf, s.Ribbon, "Steps of runs."),
    Route("GET", "/api/tasks", selecting.tasks, p.TasksOf, s.Tasks, "Tasks over time."),
    Route("GET", "/api/history", selecting.history, p.HistoryOf, s.History, "One task over time."),
    Route("GET", "/api/funnel", selecting.funnel, p.Selection, s.Funnel, "What became of them."),
    Route("GET", "/api/failures", selecting.failures, p.Selection, s.Failures, "What failed."),
    Route("GET", "/api/keys", selecting.keys, p.Nothing, s.Keys, "Keys of the query language."),
    Route("GET", "/api/values", selecting.values, p.ValuesOf, s.Facet, "Values of a key."),
    Route("GET", "/api/compare", comparing.compare, p.Compare, s.Compared, "Rollouts aligned."),
    Route("GET", "/api/rollouts/{id}", reading.detail, p.DetailOf, s.Detail, "One rollout."),
    Route(
        "GET",
        "/api/rollouts/{id}/place",
        selecting.place,
        p.PlaceOf,
        s.Place,
        "Its place in a selection.",
    ),
    Route(
        "GET",
        "/api/rollouts/{id}/messages",
        reading.messages,
        p.MessagesOf,
        s.Bodies,
        "A window of its messages.",
    ),
    Route(
        "GET",
        "/api/rollouts/{id}/messages/{n}",
        reading.text,
        p.TextOf,
        s.Body,
        "One message, from a place on.",
    ),
    Route(
        "GET",
        "/api/rollouts/{id}/tokens",
        reading.tokens,
        p.TokensOf,
        s.TokenBlocks,
        "Tokens and streams of a window of its messages.",
    ),
    Route(
        "GET",
        "/api/rollouts/{id}/strip",
        reading.strip,
        p.StripOf,
        s.Strip,
        "One stream over all its tokens.",
    ),
    Route("GET", "/api/rollouts/{id}/spans", reading.spans, p.Nothing, s.Spans, "Its spans."),
    Route(
        "GET",
        "/api/rollouts/{id}/neighbours",
        reading.neighbours,
        p.Nothing,
        s.Neighbours,
        "Siblings, the groups beside, the same task at other steps.",
    ),
    Route(
        "GET", "/api/rollouts/{id}/hits", reading.hits, p.HitsOf, s.Hits, "Where the words stand."
    ),
    Route("POST", "/api/labels", label, p.Nothing, s.Done, "Label a rollout.", body=s.Label),
    Route(
        "GET",
        "/api/events",
        streams.events,
        p.Nothing,
        s.News,
        "What is new, as events.",
        stream=True,
    ),
    Route(
        "GET",
        "/api/search",
        streams.search,
        p.Selection,
        s.Found,
        "A text search, as events.",
        stream=True,
    ),
)
