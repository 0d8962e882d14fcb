"""Moto's S3 on loopback, with every byte counted and faults on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAROLLSCOPETEST", "AWS_SECRET_ACCESS_KEY": "of-the-tests-only"}
BUCKET = "rollouts"


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None: ...


class Storage:
    """One bucket. `fault(number, method, path)` may name what happens to a request instead."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self.fault: Callable[[int, str], str | None] = lambda number, path: None
        self.stall = 5.0
        """Seconds that a request hangs whose fault is `stall`."""
        self.reset()
        self._server = make_server(
            "127.0.0.1", 0, self._serve, threaded=True, request_handler=_Silent
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        self.client.create_bucket(Bucket=BUCKET)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """Count from here."""
        self.sent = 0
        self.requests: list[str] = []

    def put(self, folder: Path) -> None:
        """Copy a store into the bucket."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                key = path.relative_to(folder).as_posix()
                self.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())

    @contextmanager
    def failing(self, fault: Callable[[int, str], str | None]) -> Iterator[None]:
        self.reset()
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda number, path: None

    def _serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with self._lock:
            number = len(self.requests)
            path = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
            self.requests.append(path)
        fault = self.fault(number, path)
        if fault == "stall":
            time.sleep(self.stall)
        elif fault is not None:
            status, _, code = fault.partition(" ")
            key = KEYS["AWS_ACCESS_KEY_ID"]
            body = f"<Error><Code>{code}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>"
            start(f"{status} {code}", [("Content-Type", "application/xml")])
            return [body.encode()]
        found = b"".join(self._app(environ, start))
        with self._lock:
            self.sent += len(found)
        return [found]
