"""Every route of the API: the one table that requests, the OpenAPI description and the
viewer's types follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from ..model.known import known
from . import comparing, reading, selecting, streams
from . import shapes as s


class Route:
    """A path and who answers there; what is asked and answered is in the answerer's signature."""

    def __init__(
        self, method: str, path: str, answerer: Callable[..., Any], events: type | None = None
    ) -> None:
        """The answerer is called with (desk, params, **path values, body=...) on a worker thread.
        That of a stream is an async generator of (event, value), called with who asks, too, and
        `events` the values' type."""
        hints = get_type_hints(answerer)
        self.method = method
        self.path = path
        self.answerer = answerer
        self.name = answerer.__name__
        self.doc = (answerer.__doc__ or "").partition("\n")[0]
        self.params: type = known(list(hints.values())[1])
        self.body: type | None = known(hints.get("body"))
        self.stream = events is not None
        self.answer: type = events or hints["return"]


_ROLLOUT = "/api/rollouts/{id}"

ROUTES = (
    Route("GET", "/api/status", selecting.status),
    Route("GET", "/api/runs", selecting.runs),
    Route("GET", "/api/rollouts", selecting.rollouts),
    Route("GET", "/api/start", selecting.start),
    Route("GET", "/api/random", selecting.any_one),
    Route("GET", "/api/facets", selecting.facets),
    Route("GET", "/api/histograms", selecting.histograms),
    Route("GET", "/api/ribbon", selecting.ribbon),
    Route("GET", "/api/tasks", selecting.tasks),
    Route("GET", "/api/matrix", selecting.matrix),
    Route("GET", "/api/history", selecting.history),
    Route("GET", "/api/funnel", selecting.funnel),
    Route("GET", "/api/failures", selecting.failures),
    Route("GET", "/api/findings", selecting.findings),
    Route("GET", "/api/keys", selecting.keys),
    Route("GET", "/api/names", selecting.names),
    Route("GET", "/api/values", selecting.values),
    Route("GET", "/api/compare", comparing.compare),
    Route("GET", _ROLLOUT, reading.detail),
    Route("GET", f"{_ROLLOUT}/place", selecting.place),
    Route("GET", f"{_ROLLOUT}/messages", reading.messages),
    Route("GET", f"{_ROLLOUT}/messages/{{n}}", reading.text),
    Route("GET", f"{_ROLLOUT}/tokens", reading.tokens),
    Route("GET", f"{_ROLLOUT}/strip", reading.strip),
    Route("GET", f"{_ROLLOUT}/spans", reading.spans),
    Route("GET", f"{_ROLLOUT}/neighbours", reading.neighbours),
    Route("GET", f"{_ROLLOUT}/hits", reading.hits),
    Route("POST", "/api/labels", reading.label),
    Route("GET", "/api/events", streams.events, s.News),
    Route("GET", "/api/search", streams.search, s.SearchNews),
)
