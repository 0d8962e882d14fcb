"""The words that home and the other nodes exchange through Ray's key-value store.

Home is the store of the driver; if the driver records nothing, that of the process which records
first. Home leaves a claim: where it is, and the name of a file that it has put there, which nobody
could guess. Whoever sees that file in its own store shares the directory, and nothing is sent.
Anybody else leaves a note, and is fetched from. The run's directory there is marked: nobody seals
its logs, because they are sealed at home.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

import msgspec

from ...model.known import known
from .. import paths

NAMESPACE = "rollscope"

_OLD = 30 * 86400.0
"""Seconds after which the file of a Ray job is no longer needed: jobs do not last so long."""

_LASTS = 3600.0
"""Seconds after which the mark of a run that is fetched from home counts no longer. Its writers
make it anew with every heartbeat."""


@known
class Claim(msgspec.Struct, kw_only=True):
    """Of a Ray job: where its rollouts are to lie."""

    root: str
    """The store, as a path on the node it is on."""
    token: str
    alone: bool = False
    """The driver has started Ray for itself: there is no other node."""


@known
class Note(msgspec.Struct, kw_only=True):
    """A process on this node writes a run, and does not see home's file."""

    node: str
    """Ray's id of it."""
    host: str
    directory: str
    """Of the run, as a path on that node."""
    project: str
    run: str
    root: str
    """Home's store."""


@known
class Task(msgspec.Struct, kw_only=True):
    """What the process that fetches is started with."""

    root: str
    token: str
    address: str
    """Of the cluster."""
    node: str = ""
    """Ray's id of the node that home is on."""
    job: str
    min_free: int = 0
    """Bytes that must stay free at home."""
    seal: bool = True
    mode: int = paths.PRIVATE


def claim_key(job: str) -> str:
    return f"{job}/home"


def notes_prefix(job: str) -> str:
    return f"{job}/from/"


def note_key(job: str, note: Note) -> str:
    return f"{notes_prefix(job)}{note.node}{note.directory}"


def token_path(root: Path, token: str) -> Path:
    """Home's file. It is also the lock of the process that fetches."""
    return root / ".carry" / token


def sees(root: Path, token: str, mode: int = paths.PRIVATE) -> bool:
    """Is home's file in this store? What is made in that folder first lets a network file system
    look at it anew."""
    with contextlib.suppress(OSError):
        probe = _folder(root, mode) / f".{secrets.token_hex(8)}"
        probe.touch()
        probe.unlink()
    return token_path(root, token).exists()


def _folder(root: Path, mode: int) -> Path:
    folder = root / ".carry"
    if not folder.is_dir():
        folder.mkdir(paths.PRIVATE, parents=True, exist_ok=True)
        if mode != paths.PRIVATE:
            folder.chmod(mode)
    return folder


def put_token(root: Path, mode: int) -> str:
    """Put a new file into the store, and take away those of jobs long gone."""
    folder = _folder(root, mode)
    for entry in paths.entries(folder):
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > _OLD:
                Path(entry.path).unlink()
    token = secrets.token_hex(16)
    token_path(root, token).touch(0o666)
    return token


def away_path(directory: Path) -> Path:
    """The mark of a run whose logs are fetched from home."""
    return directory / "carry" / "away"


def is_away(directory: Path) -> bool:
    """Is this run fetched from home?"""
    try:
        return time.time() - away_path(directory).stat().st_mtime < _LASTS
    except OSError:
        return False


def was_away(directory: Path) -> bool:
    """Was it fetched from home at some time, as far as can be seen?"""
    try:
        away_path(directory).stat()
    except OSError:
        return False
    return True


def mark_away(directory: Path) -> None:
    """Mark a run that is there. The file says what it is."""
    file = away_path(directory)
    file.parent.mkdir(exist_ok=True)
    file.write_text("Ray carries these logs to the driver's store, where they are sealed.\n")
