"""The header of a log: who wrote it, and for what."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..model import schema
from ..model.known import known
from . import paths, writers


class Header(msgspec.Struct, kw_only=True, omit_defaults=True):
    """First line of a log: who wrote it, and for what."""

    version: int = schema.VERSION
    writer: str | None = None
    project: str | None = None
    run: str | None = None
    launch: str | None = None
    worker: str | None = None
    started: float | None = None
    """When the writer began."""
    spans: int = 0
    """Not on the wire: spans of this log that were read before."""


@known
class _First(msgspec.Struct):
    log: Header


def read_header(line: bytes) -> Header | None:
    """The header, if this line is one."""
    try:
        return msgspec.json.decode(line, type=_First).log
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def complete_header(directory: Path, log: str, header: Header | None) -> Header:
    """The header of a log, worked out from what else is known if its first frame is lost."""
    if header is not None:
        return header
    names = paths.split_log_name(log)
    writer = names[0] if names else log
    info = writers.read_info(paths.writer_path(directory, writer))
    run = paths.read_run(directory)
    return Header(
        writer=writer,
        project=run.project if run else directory.parent.name,
        run=run.run if run else directory.name,
        launch=info.launch if info else None,
        worker=info.worker if info else None,
        started=info.started if info else None,
    )
