"""A static folder with the same page that any web server or bucket can show, without ours.

    site/
    ├─ index.html, assets/        the page, told by a meta tag where its answers lie
    └─ data/
       ├─ status.json, runs.json, keys.json, rows.json     the whole selection, thin
       └─ rollouts/<n>.json                                 row n whole: detail, messages, ...

The page filters, counts and compares what is in these files by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..capture.redact import Redactor, make_redactor, redact_rollout
from ..model import Message, Rollout
from ..query import Store
from . import params as p
from . import reading, selecting
from .app import STATIC
from .desk import Desk
from .security import POLICY

MOST = 20_000
"""Rollouts of one bundle: the page holds all their rows."""

_NAMES = {"id", "key", "project", "run", "task", "group", "launch"}
"""Fields that say which rollout it is; redaction leaves them, as it does when recording."""


def bundle(
    store: Store,
    query: str,
    out: str | Path,
    *,
    redact: str | Redactor | Iterable[str | Redactor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the folder; returns how many rollouts are in it."""
    if not (STATIC / "index.html").is_file():
        raise FileNotFoundError("the viewer was not built; in a checkout: make viewer")
    clean = make_redactor(redact) if redact else None
    desk = _Redacting(store, clean)
    selection = store.rollouts(query, order=selecting.DEFAULT_ORDER, columns=selecting.COLUMNS)
    count = selection.count()
    if count == 0:
        raise ValueError(f"nothing matches {query!r}: there is nothing to bundle")
    if count > MOST:
        raise ValueError(f"{count} rollouts are too many for a bundle (at most {MOST}): narrow it")
    folder = Path(out)
    _page(folder)
    rows = [selecting.thin(row) for row in selection]
    for n, row in enumerate(rows):
        _write(folder / "data" / "rollouts" / f"{n}.json", _whole(desk, row.id), clean)
        if progress is not None:
            progress(n + 1, count)
    _write(folder / "data" / "rows.json", {"rows": rows, "query": query}, clean)
    _write(folder / "data" / "keys.json", selecting.keys(desk, p.Nothing()), None)
    return count


def _whole(desk: Desk, id: str) -> dict[str, Any]:
    nothing = p.Nothing()
    messages = len(desk.rollout(id).messages)
    return {
        "detail": reading.detail(desk, nothing, id),
        "messages": reading.messages(
            desk, p.MessagesOf(first=0, count=max(1, messages), chars=10**9), id
        ).messages,
        "tokens": reading.tokens(desk, p.TokensOf(first=0, count=max(1, messages)), id).messages,
        "spans": reading.spans(desk, nothing, id),
    }


class _Redacting(Desk):
    """A desk from which only clean rollouts go out."""

    def __init__(self, store: Store, clean: Redactor | None) -> None:
        super().__init__(store, can_label=False)
        self._clean = clean

    def rollout(self, id: str) -> Rollout:
        whole = super().rollout(id)
        return whole if self._clean is None else redact_rollout(whole, self._clean)

    def messages(self, id: str, first: int, stop: int) -> list[Message]:
        return self.rollout(id).messages[first:stop]


def _page(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("assets", "data"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(STATIC, folder, dirs_exist_ok=True)
    # A header would be better, but a bucket sends none. Frames cannot be forbidden this way.
    policy = POLICY.partition("; frame-ancestors")[0]
    tags = (
        '<meta name="rollscope-bundle" content="data/" />\n    '
        f'<meta http-equiv="Content-Security-Policy" content="{policy}" />\n    '
    )
    page = (folder / "index.html").read_text()
    (folder / "index.html").write_text(page.replace("<title>", tags + "<title>", 1))


def _write(path: Path, answer: Any, clean: Redactor | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if clean is not None:
        answer = _cleaned(msgspec.to_builtins(answer), clean)
    path.write_bytes(msgspec.json.encode(answer))


def _cleaned(value: Any, clean: Redactor) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {k: v if k in _NAMES else _cleaned(v, clean) for k, v in value.items()}
    if isinstance(value, list):
        return [_cleaned(v, clean) for v in value]
    return value
