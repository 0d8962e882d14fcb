"""A stand-in for Weave's hosted trace server, which cannot run here.

It speaks the part of its HTTP protocol that a client needs to write calls, objects and feedback
and to ask for calls by id, keeps what it was sent, and can be told to fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from receiver import Answer, receiver


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

    def answer(path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        held.requests.append(path)
        held.authorization.add(headers.get("authorization"))
        if status := held.fail(path, body):
            return Answer(b'{"detail": "told to fail"}', "application/json", status)
        found = held.take(path, body)
        if isinstance(found, list):
            lines = b"".join(json.dumps(line).encode() + b"\n" for line in found)
            return Answer(lines, "application/jsonl")
        return Answer(json.dumps(found).encode(), "application/json")

    with receiver(answer) as held.url:
        yield held
