"""An OTLP collector made of the official protobufs: it keeps what it is sent.

Over HTTP by `receiver`, over gRPC by grpcio's server. `refuse` decides on each
request what else to answer than "taken".
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from receiver import Answer, receiver

KINDS = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
}


class Collector:
    """What arrived: spans and log records as plain dicts, and the requests' headers."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.refuse: Callable[[str, Any], Any] = lambda path, request: None
        """An HTTP status, an answer (partial success), or None: taken."""
        self.address = ""
        self._lock = threading.Lock()

    def take(self, request: Any) -> None:
        with self._lock:
            if isinstance(request, ExportTraceServiceRequest):
                for group in request.resource_spans:
                    resource = attributes(group.resource.attributes)
                    for scope in group.scope_spans:
                        self.spans += [
                            span_dict(s, resource, scope.scope.name) for s in scope.spans
                        ]
            else:
                for group in request.resource_logs:
                    for scope in group.scope_logs:
                        self.events += [event_dict(r) for r in scope.log_records]

    def trace(self, rollout_id: str) -> list[dict[str, Any]]:
        """The spans of one rollout, the root first."""
        root = next(s for s in self.spans if s["attributes"].get("rollscope.id") == rollout_id)
        return [s for s in self.spans if s["trace"] == root["trace"]]


def value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(v) for v in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: value(pair.value) for pair in pairs}


def span_dict(span: Any, resource: dict[str, Any], scope: str) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex() or None,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "kind": span.kind,
        "status": (span.status.code, span.status.message),
        "attributes": attributes(span.attributes),
        "events": [{"name": e.name, "attributes": attributes(e.attributes)} for e in span.events],
        "resource": resource,
        "scope": scope,
    }


def event_dict(record: Any) -> dict[str, Any]:
    return {
        "name": record.event_name,
        "trace": record.trace_id.hex(),
        "span": record.span_id.hex(),
        "attributes": attributes(record.attributes),
    }


@contextmanager
def over_http() -> Iterator[Collector]:
    collector = Collector()

    def answer(path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        collector.headers.append(headers)
        kind, reply = KINDS[path]
        is_packed = headers.get("content-encoding") == "gzip"
        request = kind.FromString(gzip.decompress(body) if is_packed else body)
        said = collector.refuse(path, request)
        if isinstance(said, int):
            return Answer(status=said)
        if said is None:
            collector.take(request)
            said = reply()
        return Answer(said.SerializeToString(), "application/x-protobuf")

    with receiver(answer) as collector.address:
        yield collector


@contextmanager
def over_grpc() -> Iterator[Collector]:
    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces

    collector = Collector()

    class Traces(traces.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.take(request)
            return ExportTraceServiceResponse()

    class Logs(logs.LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.take(request)
            return ExportLogsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    traces.add_TraceServiceServicer_to_server(Traces(), server)
    logs.add_LogsServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.address = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        server.stop(None).wait()
