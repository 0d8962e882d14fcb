"""OpenTelemetry: a trace per rollout, over OTLP, to any collector.

The root span is `invoke_agent`; below it lie `chat` and `execute_tool` spans and whatever else
was recorded. Rewards are `gen_ai.evaluation.result` events, sent as OTLP log records under the root
span. If the receiver takes no logs, or with `OTEL_LOGS_EXPORTER=none`, they are events of the span.
The standard `OTEL_EXPORTER_OTLP_*` variables say where and how to send.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ..model import Rollout
from . import _chat as chat
from ._batches import NotTaken, Trace, send_in_batches
from .base import Refused, Sink, Target
from .calls import ROOT, calls
from .otlp_attributes import Attributes, Told, evaluations, facts

EVALUATION = "gen_ai.evaluation.result"
UPDATE = "rollscope.update"
VIEWER = "http://127.0.0.1:7373"
_BATCH = 2_000_000
"""Bytes of spans in one request, roughly: gRPC servers take 4 MB unless told otherwise."""


class Otlp(Sink):
    """Sends rollouts to an OTLP receiver."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "endpoint": "the receiver's address, as OTEL_EXPORTER_OTLP_ENDPOINT has it",
        "protocol": "`http/protobuf` (default) or `grpc`, as OTEL_EXPORTER_OTLP_PROTOCOL has it",
        "content": "`full` (default): with texts. `none`: only numbers, names and the link",
        "viewer": f"where `rollscope view` runs, for the link (default {VIEWER})",
        "provider": "gen_ai.provider.name of the policy (default `unknown`)",
    }

    def __init__(self, target: Target, options: Mapping[str, str]) -> None:
        super().__init__(target, options)
        self.has_content = _one_of(options, "content", ("full", "none")) == "full"
        said = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        given = {"protocol": options.get("protocol") or said or "http/protobuf"}
        self.protocol = _one_of(given, "protocol", ("http/protobuf", "grpc"))
        self.has_logs = os.environ.get("OTEL_LOGS_EXPORTER", "").strip() != "none"
        self._judged: dict[str, list[Attributes]] = {}

    def open(self) -> str:
        try:
            from opentelemetry.sdk.resources import Resource

            spans, logs = _exporters(self.protocol)
        except ImportError as error:
            kind = "grpc" if self.protocol == "grpc" else "http"
            package = f"opentelemetry-exporter-otlp-proto-{kind}"
            raise ImportError(f"{error}. Type: pip install {package}") from error
        self._answer = _Answer()
        base = self.options.get("endpoint")
        if self.protocol == "grpc":
            self._spans, self._logs = spans(endpoint=base), logs(endpoint=base)
        else:
            session = self._answer.session()
            self._spans = spans(endpoint=_signal(base, "traces"), session=session)
            self._logs = logs(endpoint=_signal(base, "logs"), session=session)
        service = os.environ.get("OTEL_SERVICE_NAME") or self.target.project
        self._resource = Resource.create(
            {"service.name": service, "openinference.project.name": self.target.project}
        )
        self.has_logs = self.has_logs and self._takes_logs()
        return str(self._spans._endpoint)

    def send(self, rollouts: Sequence[Rollout]) -> None:
        traces = [(rollout, self._trace(rollout)) for rollout in rollouts]
        refused = send_in_batches(traces, self._send, size=_size_of_spans, most=_BATCH)
        untold: dict[str, str] = {}
        if self.has_logs:  # by themselves: a trace that arrived is not sent again for its events
            judged = [(r, self._new_results(r)) for r in rollouts if r.id not in refused]
            untold = send_in_batches(judged, self._judge, size=_size, most=_BATCH)
        if refused or untold:
            raise Refused(refused, next(iter((refused or untold).values())), partly=untold)

    @property
    def can_update(self) -> bool:
        return self.has_logs

    def update(self, rollout: Rollout) -> bool:
        """Later facts go as one more event with everything that is known by now."""
        if not self.has_logs:
            return False
        known = facts(rollout, has_content=self.has_content)
        try:
            self._export(self._logs, [self._event(rollout, UPDATE, known)])
            self._judge([(rollout, self._new_results(rollout))])
        except NotTaken:
            return False
        return True

    def close(self) -> None:
        self._spans.shutdown()
        self._logs.shutdown()
        self._answer.close()

    def _trace(self, rollout: Rollout) -> list[Any]:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        link = f"{self.options.get('viewer', VIEWER).rstrip('/')}/?id={rollout.id}"
        provider = self.options.get("provider", "unknown")
        told = Told(rollout, link=link, provider=provider, has_content=self.has_content)
        found = calls(rollout)
        times = chat.times(rollout, found)
        made = []
        for call in found:
            name, attributes = told.call(call)
            start, end = (round(seconds * 1e9) for seconds in times[call.id])
            if not chat.has_times(call):
                attributes["rollscope.times"] = "not known"
            events = []
            if call.id == ROOT and not self.has_logs:
                events = [Event(EVALUATION, a, timestamp=end) for a in self._results(rollout)]
            text = call.error.text if call.error is not None and self.has_content else None
            made.append(
                ReadableSpan(
                    name,
                    context=_context(rollout, call.id),
                    parent=_context(rollout, call.parent) if call.parent is not None else None,
                    resource=self._resource,
                    attributes=attributes,
                    events=events,
                    kind=SpanKind.CLIENT if call.kind == "chat" else SpanKind.INTERNAL,
                    status=Status(StatusCode.ERROR, text) if call.error else Status(),
                    start_time=start,
                    end_time=end,
                    instrumentation_scope=_scope(),
                )
            )
        return made

    def _judge(self, batch: Sequence[Trace[list[Attributes]]]) -> None:
        """Send rewards as events of the root span."""
        events = [
            self._event(rollout, EVALUATION, result) for rollout, new in batch for result in new
        ]
        if events:
            self._export(self._logs, events)
        for rollout, _ in batch:
            self._judged[str(rollout.id)] = self._results(rollout)
        while len(self._judged) > 10_000:
            del self._judged[next(iter(self._judged))]

    def _new_results(self, rollout: Rollout) -> list[Attributes]:
        """The rewards that were not sent yet by this process."""
        before = self._judged.get(str(rollout.id), [])
        return [result for result in self._results(rollout) if result not in before]

    def _results(self, rollout: Rollout) -> list[Attributes]:
        return list(evaluations(rollout, has_content=self.has_content))

    def _event(self, rollout: Rollout, name: str, attributes: Attributes) -> Any:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        span = NonRecordingSpan(_context(rollout, ROOT))
        record = LogRecord(
            timestamp=time.time_ns(),
            context=set_span_in_context(span),
            severity_number=SeverityNumber.INFO,
            attributes=attributes,
            event_name=name,
        )
        return ReadableLogRecord(record, self._resource, _scope())

    def _takes_logs(self) -> bool:
        """Some receivers (Jaeger, Phoenix) take traces alone: ask with an empty request."""
        self._answer.forget()
        self._logs.export([])
        answer = self._answer
        return answer.status not in (404, 405, 501) and "UNIMPLEMENTED" not in answer.text

    def _send(self, batch: Sequence[Trace[list[Any]]]) -> None:
        self._export(self._spans, [span for _, spans in batch for span in spans])

    def _export(self, exporter: Any, batch: list[Any]) -> None:
        """The exporter tries again for a while by itself."""
        self._answer.forget()
        is_taken = exporter.export(batch).name == "SUCCESS"
        where, answer = exporter._endpoint, self._answer
        if answer.refused:
            raise NotTaken(f"{where} refused {answer.refused:,}: {answer.text or 'no reason'}")
        if not is_taken and (answer.status in (400, 413) or "max_request_size" in answer.text):
            raise NotTaken(f"{where}: {answer.reason}")
        if not is_taken:
            raise ConnectionError(f"{where}: {answer.reason}")


class _Answer(logging.Handler):
    """The receiver's answer to the last request. The exporters do not pass it on: they only log a
    failure, and a partial success not even that."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logger = logging.getLogger("opentelemetry.exporter")
        self._logger.addHandler(self)
        self._logger.propagate = False
        self.forget()

    def forget(self) -> None:
        self.text = ""
        self.status: int | None = None
        self.refused = 0

    @property
    def reason(self) -> str:
        """Why it failed. The exporters do not log the same failure twice in a row."""
        status = "not taken" if self.status is None else f"answered with {self.status}"
        return self.text or status

    def session(self) -> Any:
        """A session of `requests` that lets us hear the answers."""
        import requests

        session = requests.Session()
        session.hooks["response"].append(self._hear)
        return session

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()

    def _hear(self, response: Any, **_: Any) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        self.status = response.status_code
        if response.ok and "protobuf" in response.headers.get("content-type", ""):
            # The answers for spans and for logs have the same shape.
            partial = ExportTraceServiceResponse.FromString(response.content).partial_success
            self.refused, self.text = partial.rejected_spans, partial.error_message


def _exporters(protocol: str) -> tuple[Any, Any]:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return OTLPSpanExporter, OTLPLogExporter


def _signal(endpoint: str | None, signal: str) -> str | None:
    """The address of a signal below that of the receiver; None: the variables say it."""
    return f"{endpoint.rstrip('/')}/v1/{signal}" if endpoint else None


def _context(rollout: Rollout, call: str) -> Any:
    """Ids made from the rollout's id: if it is sent twice, it is the same trace."""
    from opentelemetry.trace import SpanContext, TraceFlags

    trace = hashlib.blake2b(str(rollout.id).encode(), digest_size=16).digest()
    span = hashlib.blake2b(f"{rollout.id}\0{call}".encode(), digest_size=8).digest()
    return SpanContext(
        int.from_bytes(trace, "big"),
        int.from_bytes(span, "big"),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _scope() -> Any:
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return InstrumentationScope("rollscope")


def _size_of_spans(spans: Iterable[Any]) -> int:
    return _size(span.attributes for span in spans)


def _size(several: Iterable[Attributes]) -> int:
    return sum(
        len(name) + (len(value) if isinstance(value, str) else 16)
        for attributes in several
        for name, value in attributes.items()
    )


def _one_of(options: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """An option that takes one of a few words; the first is the default."""
    value = options.get(name, words[0])
    if value not in words:
        raise ValueError(f"otlp: {name}={value!r}; expected {' or '.join(words)}")
    return value
