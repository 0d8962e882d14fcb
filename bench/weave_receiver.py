"""A stand-in for Weave's hosted trace server: takes every request and keeps its bytes.

It answers just enough for Weave's own client to go on. It runs in a process of its own, so
that its work is not charged to the client.
"""

from __future__ import annotations

import http.server
import importlib
import json
import multiprocessing
import threading
from pathlib import Path
from typing import Any


class _Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    one = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.one, (self.folder / "received").open("ab") as file:
            file.write(body)
        self._answer({"digest": "x" * 43, "res": [], "project_id": "bench", "row_digests": []})

    def do_GET(self) -> None:
        self._answer({"min_required_weave_python_version": "0.0.0"})

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _serve(folder: Path, ready: Any) -> None:
    _Receiver.folder = folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    ready.send(server.server_port)
    server.serve_forever()


def client(folder: Path) -> Any:
    """Weave's own client, talking to a new receiver."""
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(
        target=_serve, args=(folder, theirs), daemon=True
    ).start()
    url = f"http://127.0.0.1:{ours.recv()}"
    from weave.trace.context.weave_client_context import set_weave_client_global
    from weave.trace.weave_client import WeaveClient
    from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer

    # The client's threads import this on first use, some at once: Python then finds a deadlock
    # among them now and then, and the client loses what they were to send. By its whole name:
    # the package has an attribute of the same name, which imports nothing before it is used.
    importlib.import_module("weave.vendor.weave_server_sdk.resources")

    server = RemoteHTTPTraceServer(url, should_batch=True, username="api", password="x" * 40)
    made = WeaveClient("bench", "bench", server, ensure_project_exists=False)
    set_weave_client_global(made)
    return made
