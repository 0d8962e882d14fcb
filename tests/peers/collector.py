"""An OTLP collector made of the official protobufs: it keeps what it is sent.

Over HTTP by the standard library's server, over gRPC by grpcio's. `refuse` decides on each
request what else to answer than "taken".
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
}


class Collector:
    """What arrived: spans and log records as plain dicts, and the requests' headers."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            kind, reply = KINDS[self.path]
            request = kind.FromString(body)
            answer = collector.refuse(self.path, request)
            if isinstance(answer, int):
                self.send_response(answer)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            if answer is None:
                collector.take(request)
            data = (answer if answer is not None else reply()).SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
