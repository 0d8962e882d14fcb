"""A fresh SQLite file for MLflow, set up without getting in anybody's way.

MLflow 3.17 sets up a fresh file by dozens of migrations, without a lock. If two processes begin at
once, one of them fails with "table already exists", and that could be the trainer. So we set up a
missing file under another name and then link it to its place, which fails if another process was
quicker. If another process is setting up the file, we wait.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote

PATIENCE = 120.0
"""Seconds without any change after which a half set up file counts as left behind."""

_SCHEME = "sqlite:///"


def absolute(uri: str, folder: str) -> str:
    """A tracking address that means the same in every folder."""
    if uri.startswith(_SCHEME) and uri != _SCHEME + ":memory:":
        path, question, options = uri.removeprefix(_SCHEME).partition("?")
        return f"{_SCHEME}{os.path.join(folder, path)}{question}{options}"  # noqa: PTH118
    is_path = ":" not in uri and uri != "databricks"
    return os.path.join(folder, uri) if is_path else uri  # noqa: PTH118


def prepare(uri: str) -> None:
    """Returns when MLflow can open the SQLite file of this address. Raises `BlockingIOError` while
    another process is setting it up."""
    path = _path(uri)
    if path is None:
        return
    if not path.exists():
        _set_up(path)
    if not _is_ready(path) and time.time() - _last_change(path) < PATIENCE:
        raise BlockingIOError(f"{path} is being set up by another process")


def _path(uri: str) -> Path | None:
    if not uri.startswith(_SCHEME):
        return None
    path = unquote(uri.removeprefix(_SCHEME).partition("?")[0])
    return Path(path) if path and path != ":memory:" else None


def _set_up(path: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    ours = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        store = SqlAlchemyStore(_SCHEME + str(ours), DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)
        store.engine.dispose()
        with suppress(FileExistsError):  # somebody else was quicker
            os.link(ours, path)
    finally:
        ours.unlink(missing_ok=True)


def _is_ready(path: Path) -> bool:
    """Has the file the newest schema that this MLflow knows, and the experiment that MLflow
    makes last?"""
    from mlflow.store.db.utils import _get_latest_schema_revision

    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            found = db.execute("SELECT version_num FROM alembic_version").fetchall()
            first = db.execute("SELECT 1 FROM experiments WHERE experiment_id = 0").fetchall()
    except sqlite3.OperationalError:
        return False
    return found == [(_get_latest_schema_revision(),)] and first != []


def _last_change(path: Path) -> float:
    beside = [path, *(path.with_name(path.name + end) for end in ("-journal", "-wal"))]
    return max(p.stat().st_mtime for p in beside if p.exists())
