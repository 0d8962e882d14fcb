"""What was sent where: `<run>/sinks/<name>.jsonl`, appended before and after every sending.

A line is one of
    {"to": "..."}                        what follows concerns this destination
    {"sending": [[id, digest], ...]}     these are on their way
    {"sent": [[id, digest], ...]}        the other system has them, with the facts of `digest`
    {"gave_up": [id, ...]}               these are not tried again

A line is on the disk before its sending begins. If a process dies, the rollouts on their way are
neither sent nor unsent: `doubtful` names them, and the other system is asked. Lines are never
removed, so nothing is sent twice after any number of restarts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

IdDigest = tuple[str, str]
"""Id of a rollout, and the digest of its facts."""


class Journal:
    """One sink's journal of one run. Only the process that holds the sink's lock opens it."""

    def __init__(self, path: Path, to: str, *, forget: bool = False) -> None:
        """`forget`: everything counts as unsent and is sent again."""
        self.sent: dict[str, str] = {}
        """Digest of what the other system knows, by id."""
        self.doubtful: dict[str, str] = {}
        """On their way when a process died."""
        self.gave_up: set[str] = set()
        path.parent.mkdir(exist_ok=True)
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        last = self._read(path.read_bytes(), to)
        if last != to:
            self._append({"to": to})
        if forget:
            self.sent, self.doubtful, self.gave_up = {}, {}, set()

    def _read(self, data: bytes, to: str) -> str | None:
        """Read what concerns the destination `to`. Returns the last destination in the file."""
        now: str | None = None
        if data and not data.endswith(b"\n"):  # torn by a crash: end the line, it says nothing
            os.write(self._fd, b"\n")
        for line in data.splitlines():
            try:
                entry = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.MsgspecError:
                continue
            now = entry.get("to", now)
            if now == to:
                self._take(entry)
        return now

    def _take(self, entry: dict[str, Any]) -> None:
        for id, digest in entry.get("sending", ()):
            self.doubtful[id] = digest
        for id, digest in entry.get("sent", ()):
            self.doubtful.pop(id, None)
            self.gave_up.discard(id)
            self.sent[id] = digest
        for id in entry.get("gave_up", ()):
            self.doubtful.pop(id, None)
            self.gave_up.add(id)

    def sending(self, pairs: Iterable[IdDigest]) -> None:
        """These are about to be sent."""
        new = [pair for pair in pairs if pair[0] not in self.doubtful]
        if new:
            self._append({"sending": new})
            self.doubtful |= dict(new)

    def have(self, pairs: Collection[IdDigest]) -> None:
        """The other system has these, with these facts."""
        if pairs:
            self._append({"sent": list(pairs)})
            self._take({"sent": pairs})

    def give_up(self, ids: list[str]) -> None:
        self._append({"gave_up": ids})
        self._take({"gave_up": ids})

    def has_not(self, ids: Iterable[str]) -> None:
        """The other system was asked: these did not arrive, so they are sent anew."""
        for id in ids:
            self.doubtful.pop(id, None)

    def _append(self, entry: dict[str, Any]) -> None:
        data = memoryview(msgspec.json.encode(entry) + b"\n")
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
