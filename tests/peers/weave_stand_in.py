"""A stand-in for Weave's hosted trace server, which cannot run here.

It speaks the part of its HTTP protocol that a client needs to write calls, objects and feedback
and to ask for calls by id, keeps what it was sent, and can be told to fail.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn:
    """What the server holds."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        """By id: a call that is sent again replaces the earlier one, as the server's table
        does."""
        self.objects: list[dict[str, Any]] = []
        self.files: list[bytes] = []
        self.feedback: dict[str, dict[str, Any]] = {}
        self.authorization: set[str | None] = set()
        self.requests: list[str] = []
        self.fail: Any = lambda path, body: None
        """Returns a status for requests that shall fail."""
        self.url = ""

    def take(self, path: str, body: bytes) -> Any:
        if path.startswith("/v2/") and path.endswith("/calls/complete"):
            for call in json.loads(body)["batch"]:
                assert call["project_id"] == "/".join(path.split("/")[2:4])
                self.calls[call["id"]] = call
            return {}
        if path == "/obj/create":
            self.objects.append(json.loads(body)["obj"])
            return {"digest": hashlib.sha256(body).hexdigest()[:43]}
        if path == "/file/create":
            self.files.append(body)
            return {"digest": hashlib.sha256(body).hexdigest()[:43]}
        if path == "/feedback/create":
            made = json.loads(body)
            self.feedback[made["id"]] = made
            return {"id": made["id"], "created_at": "2026-01-01T00:00:00Z", "wb_user_id": "",
                    "payload": made["payload"]}  # fmt: skip
        if path == "/calls/stream_query":
            wanted = json.loads(body)["filter"]["call_ids"]
            return [self.calls[id] for id in wanted if id in self.calls]
        raise AssertionError(f"the stand-in does not know {path}")


@contextmanager
def stand_in() -> Iterator[StandIn]:
    held = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            held.requests.append(self.path)
            held.authorization.add(self.headers.get("Authorization"))
            status = held.fail(self.path, body)
            answer = {"detail": "told to fail"} if status else held.take(self.path, body)
            lines = answer if isinstance(answer, list) else [answer]
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            self.send_response(status or 200)
            kind = "application/jsonl" if isinstance(answer, list) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
