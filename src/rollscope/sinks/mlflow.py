"""MLflow: a trace per rollout, in the experiment of the project, linked to the training run.

Spans and facts go straight to the tracking store. MLflow's own exporter is not used, because it
drops a trace that it cannot send and only writes a line to its log.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..model import Error, Rollout
from . import mlflow_sqlite, mlflow_trace
from ._batches import NotTaken, Trace, send_in_batches
from ._loaded import loaded
from .base import Metric, Refused, Sink
from .mlflow_runs import Home, trace_info

_BATCH = 4_000_000
"""Characters of spans in one request, roughly."""

_MOST_METRICS, _LONGEST_NAME = 1000, 250
"""Metrics in one request, and characters of a metric's name, that MLflow takes."""

_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the forwarder tries again by itself
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Environment of the forwarding process, unless the user has set it."""


class MLflow(Sink):
    """Sends rollouts to an MLflow tracking store."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "tracking_uri": "where MLflow's store is (default: what the trainer uses, else "
        "MLFLOW_TRACKING_URI, else MLflow's own default)",
        "experiment": "name of the experiment (default: that of the trainer's run, else the "
        "project)",
        "run_id": "the run that the traces belong to (default: the one that the trainer has open)",
    }

    _last_run: ClassVar[str | None] = None
    """The run of this process, which the trainer may close before everything is forwarded."""

    @classmethod
    def hints(cls) -> Mapping[str, str]:
        """The run that is open in any thread, or was, and the store that is in use (unless its
        address has a password: then the environment must tell)."""
        found = {}
        if run := _open_run() or cls._last_run or os.environ.get("MLFLOW_RUN_ID"):
            found["run_id"] = cls._last_run = run
        if uri := _tracking_uri() or os.environ.get("MLFLOW_TRACKING_URI"):
            uri = mlflow_sqlite.absolute(uri, str(Path.cwd()))
            if uri == _public(uri):
                found["tracking_uri"] = uri
        return found

    def open(self) -> str:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            import mlflow
            from mlflow.tracing.client import TracingClient
        except ImportError as error:
            raise ImportError(f"{error}. Type: pip install mlflow") from error
        hints, options = self.target.hints, self.options
        uri = options.get("tracking_uri") or hints.get("tracking_uri") or mlflow.get_tracking_uri()
        uri = mlflow_sqlite.absolute(uri, str(Path.cwd()))
        mlflow_sqlite.prepare(uri)
        self._client = mlflow.MlflowClient(uri)
        self._tracing = TracingClient(uri)
        self._home = Home(self._client, self._tracing, self.target, options)
        self._experiment = self._home.experiment
        return f"{_public(uri).rstrip('/')}/#/experiments/{self._experiment}/traces"

    def send(self, rollouts: Sequence[Rollout]) -> None:
        traces = [(rollout, mlflow_trace.spans(rollout)) for rollout in rollouts]
        refused = send_in_batches(traces, self._send, size=_size, most=_BATCH)
        if refused:
            raise Refused(refused, next(iter(refused.values())))

    def update(self, rollout: Rollout) -> bool:
        """Tags and assessments follow the facts. What people changed there stays."""
        id = mlflow_trace.trace_id(self._experiment, rollout)
        before = self._info(id)
        if before is None:  # somebody deleted it there
            return False
        root = next(span for span in mlflow_trace.spans(rollout) if span.parent is None)
        known = {a.assessment_id: (a.name, _value(a), a.rationale) for a in before.assessments}
        made = [
            a
            for a in mlflow_trace.assessments(rollout, id)
            if known.get(a.id) != (a.name, a.value, a.rationale)
        ]
        self._log_spans([self._span(id, root)])
        self._start(rollout, [root], made)
        for name in before.tags.keys() - mlflow_trace.tags(rollout).keys():
            if name.startswith("rollscope."):  # a label that was taken back
                self._client.delete_trace_tag(id, name)
        return True

    def holds(self, ids: Collection[str]) -> set[str]:
        """A trace is whole when it has the tag that is written last."""
        found = {id: self._info(mlflow_trace.trace_id(self._experiment, id)) for id in ids}
        return {
            id
            for id, info in found.items()
            if info is not None and info.tags.get("rollscope.id") == id
        }

    @property
    def wants_metrics(self) -> bool:
        return self._home.is_ours

    def send_metrics(self, metrics: Sequence[Metric]) -> None:
        """MLflow keeps each value of a step once, however often it comes."""
        from mlflow.entities import Metric as Point

        points = [
            Point(_metric_name(m.name), m.value, round(m.time * 1000), m.step or 0) for m in metrics
        ]
        for first in range(0, len(points), _MOST_METRICS):
            part = points[first : first + _MOST_METRICS]
            self._client.log_batch(self._home.run_id, metrics=part)

    def close(self) -> None:
        self._home.close()

    # -- traces ------------------------------------------------------------------------

    def _send(self, batch: Sequence[Trace[list[mlflow_trace.MlflowSpan]]]) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._log_spans(
                [
                    self._span(mlflow_trace.trace_id(self._experiment, rollout), span)
                    for rollout, spans in batch
                    for span in spans
                ]
            )
            for rollout, spans in batch:
                id = mlflow_trace.trace_id(self._experiment, rollout)
                self._start(rollout, spans, mlflow_trace.assessments(rollout, id))
            self._home.have_moved([str(rollout.id) for rollout, _ in batch])
        except MlflowException as error:
            if error.get_http_status_code() not in (400, 413, 422):
                raise
            if len(batch) == 1:
                half = mlflow_trace.trace_id(self._experiment, batch[0][0])
                self._client.delete_traces(self._experiment, trace_ids=[half])
            raise NotTaken(str(error)) from error

    def _log_spans(self, spans: list[Any]) -> None:
        try:
            self._tracing.log_spans(self._experiment, spans)
        except NotImplementedError as error:
            raise ValueError(
                f"mlflow: this store takes no spans ({error}). It must be a database (SQLite, "
                "PostgreSQL, ...) or a tracking server of MLflow 3.4 or later on one"
            ) from error

    def _start(
        self,
        rollout: Rollout,
        spans: Sequence[mlflow_trace.MlflowSpan],
        made: Iterable[mlflow_trace.Assessment],
    ) -> None:
        """Write what is known of the trace as a whole. MLflow calls that `start`."""
        from mlflow.entities import TraceInfo, TraceLocation, TraceState

        id = mlflow_trace.trace_id(self._experiment, rollout)
        has_failed = rollout.error is not None or rollout.fate == "failed"
        request, response = mlflow_trace.previews(rollout)
        metadata = {"mlflow.trace_schema.version": "3", "mlflow.sourceRun": self._home.run_id}
        if rollout.group is not None and len(rollout.group) <= 250:  # MLflow takes no longer ones
            metadata["mlflow.trace.session"] = rollout.group  # siblings beside each other
        self._tracing.start_trace(
            TraceInfo(
                trace_id=id,
                client_request_id=rollout.id,
                trace_location=TraceLocation.from_experiment_id(self._experiment),
                request_time=spans[0].start // 1_000_000,
                execution_duration=mlflow_trace.duration(rollout),
                state=TraceState.ERROR if has_failed else TraceState.OK,
                request_preview=request,
                response_preview=response,
                trace_metadata=metadata,
                tags=mlflow_trace.tags(rollout),
                assessments=[_assessment(a, id) for a in made],
            )
        )

    def _span(self, trace: str, span: mlflow_trace.MlflowSpan) -> Any:
        from mlflow.entities import Span

        attributes = {"mlflow.traceRequestId": trace, **span.attributes}
        error = span.error
        return Span.from_dict(
            {
                "trace_id": _bytes(trace.removeprefix("tr-")),
                "span_id": _bytes(span.id),
                "parent_span_id": span.parent and _bytes(span.parent),
                "name": span.name,
                "start_time_unix_nano": span.start,
                "end_time_unix_nano": span.end,
                "events": [_exception(error, span.end)] if error is not None else [],
                "status": {
                    "code": "STATUS_CODE_OK" if error is None else "STATUS_CODE_ERROR",
                    "message": (error.text or "") if error is not None else "",
                },
                "attributes": {k: json.dumps(v) for k, v in attributes.items()},
            }
        )

    def _info(self, trace: str) -> Any:
        return trace_info(self._tracing, trace)


def _size(spans: Iterable[mlflow_trace.MlflowSpan]) -> int:
    return sum(len(json.dumps(span.attributes)) for span in spans)


def _assessment(made: mlflow_trace.Assessment, trace: str) -> Any:
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    kind = Expectation if made.is_expected else Feedback
    more = {} if made.is_expected else {"rationale": made.rationale}
    source = AssessmentSource(source_type="CODE", source_id="rollscope")
    found = kind(name=made.name, value=made.value, source=source, span_id=made.span, **more)
    found.assessment_id, found.trace_id = made.id, trace
    return found


def _value(found: Any) -> Any:
    return (found.expectation or found.feedback or found.issue).value


def _exception(error: Error, time: int) -> dict[str, Any]:
    """The event by which MLflow's page shows what went wrong."""
    attributes = {
        "exception.type": error.type or error.kind or "error",
        "exception.message": error.text or "",
    }
    return {"name": "exception", "time_unix_nano": time, "attributes": attributes}


def _bytes(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def _open_run() -> str | None:
    """The run that the trainer has open: MLflow keeps a stack of them for each thread. Of several
    threads, the one that began first counts: others come and go."""
    fluent = loaded("mlflow.tracking.fluent")
    stacks = getattr(fluent, "_active_run_stack", None)
    if stacks is None:
        return None
    open_runs = [stack[-1].info for stack in stacks.get_all_thread_values().values() if stack]
    first = min(open_runs, key=lambda info: info.start_time or 0, default=None)
    return None if first is None else str(first.run_id)


def _metric_name(name: str) -> str:
    """A name that MLflow takes. verl writes `@` as `_at_` there.

    >>> _metric_name("val/mean@8")
    'val/mean_at_8'
    """
    taken = re.sub(r"[^\w/.:\- ]", "_", name.replace("@", "_at_"), flags=re.ASCII)
    parts = [part for part in taken.split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[:_LONGEST_NAME] or "_"


def _public(uri: str) -> str:
    """An address without its password."""
    return re.sub(r"//[^/@]*@", "//", uri)


def _tracking_uri() -> str | None:
    """The store that the trainer uses; None if MLflow is not loaded."""
    utils = loaded("mlflow.tracking._tracking_service.utils")
    return None if utils is None else str(utils.get_tracking_uri())
