"""A static folder with the same page that any web server or bucket can show, without ours.

    site/
    ├─ index.html, assets/        the page, told by a meta tag where its answers lie
    └─ data/
       ├─ rows.json               the whole selection, thin, and how many texts there are
       ├─ keys.json, metrics.json keys of the query language; what the trainers logged
       ├─ rollouts/<n>.json       row n whole: detail, messages, tokens, spans
       └─ texts/<k>.json          all that can be searched, some rollouts at a time

The page filters, counts and compares what is in these files by itself.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from ..model import Message, Rollout, conversation
from ..model.cleaner import NAMES, Cleaner
from ..model.redact import Redactor, clean_json, make_redactor
from ..query import Store
from ..query.match import searched
from ..query.rows import Row
from ..store.read.bodies import Sketch
from . import params as p
from . import reading, selecting
from . import shapes as s
from .app import STATIC
from .desk import WHOLE, Desk
from .routes import ROUTES
from .rows import COLUMNS as LISTED
from .rows import number, thin
from .security import POLICY

AnyRow = TypeVar("AnyRow", bound=s.RolloutRow)

MARK = "rollscope-bundle"
"""Name of the tag that tells the page, and the next bundle, what the folder is."""

MOST = 20_000
"""Rollouts of one bundle: the page holds all their rows."""

TEXTS = 2 << 20
"""Characters of one file of texts: the page searches one after the other."""

COLUMNS = (*LISTED, "error_text")
"""What rows are made from."""

_FREE = {"inputs", "outputs", "meta", "arguments", "data", "state", "reference", "sampling"}
"""Fields that hold whatever a trainer put there, token ids perhaps."""


class BundledRow(s.RolloutRow, kw_only=True):
    """One rollout, with all that the page needs to filter and to count by itself."""

    error_text: str | None = None


def bundled(row: Row) -> BundledRow:
    """A row of a bundle."""
    return BundledRow(**asdict(thin(row)), error_text=row.error_text)


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
    cleaner = Cleaner(make_redactor(redact)) if redact else None
    desk = _Redacting(store, cleaner)
    selection = store.rollouts(query, order=selecting.DEFAULT_ORDER, columns=COLUMNS)
    count = selection.count()
    if count == 0:
        raise ValueError(f"nothing matches {query!r}: there is nothing to bundle")
    if count > MOST:
        raise ValueError(f"{count} rollouts are too many for a bundle (at most {MOST}): narrow it")
    folder = Path(out)
    _vacant(folder)
    data = folder / "data"
    _page(folder)
    rows = []
    texts = _Texts(data / "texts", cleaner)
    for n, row in enumerate(selection):
        rows.append(desk.previewed(bundled(row)))
        _write(data / "rollouts" / f"{n}.json", _whole(desk, row.id), cleaner)
        texts.add(desk.rollout(row.id))
        if progress is not None:
            progress(n + 1, count)
    about = {"rows": rows, "query": query, "texts": texts.close()}
    _write(data / "rows.json", about, cleaner)
    _write(data / "metrics.json", _metrics(store, rows), cleaner)
    _write(data / "keys.json", selecting.keys(desk, p.Nothing()), None)
    return count


def _metrics(store: Store, rows: Sequence[s.RolloutRow]) -> list[dict[str, Any]]:
    """What was logged by the runs of the selection, and what checks found in their steps."""
    runs = {(row.project, row.run): None for row in rows if row.run is not None}
    return [
        {
            "project": project or "",
            "run": run,
            "metrics": {
                name: [(step, number(value)) for step, value in points]
                for name, points in store.metrics(run, project).items()
            },
            "alarms": selecting.alarms(store, project, run),
        }
        for project, run in runs
        if run is not None
    ]


class _Texts:
    """Writes what can be searched: of each rollout, roles and texts of its messages."""

    def __init__(self, folder: Path, cleaner: Cleaner | None) -> None:
        self._folder = folder
        self._cleaner = cleaner
        self._held: list[list[tuple[str, str | None]]] = []
        self._first = self._size = self._files = 0

    def add(self, rollout: Rollout) -> None:
        said: list[tuple[str, str | None]] = []
        for message in rollout.messages:
            texts = [(message.role, text) for text in searched(message)]
            said += texts or [(message.role, None)]  # its role can be asked for, too
        self._held.append(said)
        self._size += sum(len(text or "") for _, text in said)
        if self._size >= TEXTS:
            self._write()

    def close(self) -> int:
        """How many files there are."""
        if self._held:
            self._write()
        return self._files

    def _write(self) -> None:
        answer = {"first": self._first, "said": self._held}
        _write(self._folder / f"{self._files}.json", answer, self._cleaner)
        self._files += 1
        self._first += len(self._held)
        self._held, self._size = [], 0


def _whole(desk: _Redacting, id: str) -> dict[str, Any]:
    nothing = p.Nothing()
    messages = len(desk.rollout(id).messages)
    detail = reading.detail(desk, p.DetailOf(), id)
    detail.row = desk.previewed(detail.row)
    return {
        "detail": detail,
        "messages": reading.messages(
            desk, p.MessagesOf(first=0, count=max(1, messages), chars=10**9), id
        ).messages,
        "tokens": [
            msgspec.structs.replace(block, text="")  # the page has it from the message
            for block in reading.tokens(
                desk, p.TokensOf(first=0, count=max(1, messages)), id
            ).messages
        ],
        "spans": reading.spans(desk, nothing, id),
    }


class _Redacting(Desk):
    """A desk from which only clean rollouts go out."""

    def __init__(self, store: Store, cleaner: Cleaner | None) -> None:
        super().__init__(store, can_label=False)
        self._cleaner = cleaner

    def rollout(self, id: str) -> Rollout:
        whole, cleaner = super().rollout(id), self._cleaner
        if cleaner is None:
            return whole
        return self.keep(("clean", id), lambda: cleaner.rollout(whole), WHOLE)

    def messages(self, id: str, first: int, stop: int) -> list[Message]:
        return self.rollout(id).messages[first:stop]

    def outline(self, id: str) -> list[Sketch]:
        """Previews are cut from clean texts, because a secret that is cut in two is not
        recognised."""
        sketches = super().outline(id)
        if self._cleaner is None:
            return sketches
        whole = [conversation.text(message) for message in self.rollout(id).messages]
        return [m._replace(beginning=whole[m.n][: len(m.beginning)]) for m in sketches]

    def previewed(self, row: AnyRow) -> AnyRow:
        """The row with previews of clean texts, for the same reason."""
        if self._cleaner is None:
            return row
        dirty = [text for m in super().rollout(row.id).messages for text in _beginnings(m)]
        clean = [text for m in self.rollout(row.id).messages for text in _beginnings(m)]

        def of(preview: str | None) -> str | None:
            if preview is None:
                return None
            pairs = zip(dirty, clean, strict=True)
            return next((new[: len(preview)] for old, new in pairs if old.startswith(preview)), "")

        return msgspec.structs.replace(
            row, preview=of(row.preview), prompt_preview=of(row.prompt_preview)
        )


def _beginnings(message: Message) -> tuple[str, str]:
    """Where a preview of a message may begin: with its text, or after its thinking."""
    return conversation.text(message), conversation.answer(message)


def _vacant(folder: Path) -> None:
    """Refuses a folder with anything but an earlier bundle in it, because its content is
    replaced."""
    page = folder / "index.html"
    is_ours = page.is_file() and MARK in page.read_text(errors="replace")
    if folder.exists() and not is_ours and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} holds something that is no bundle: name a new folder")


def _page(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("assets", "data"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(STATIC, folder, dirs_exist_ok=True)
    # A header would be better, but a bucket sends none. Frames cannot be forbidden this way.
    policy = POLICY.partition("; frame-ancestors")[0]
    tags = (
        f'<meta name="{MARK}" content="data/" />\n    '
        f'<meta http-equiv="Content-Security-Policy" content="{policy}" />\n    '
    )
    page = (folder / "index.html").read_text()
    (folder / "index.html").write_text(page.replace("<title>", tags + "<title>", 1))


def _write(path: Path, answer: Any, cleaner: Cleaner | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if cleaner is not None:
        answer = _cleaned(msgspec.to_builtins(answer), cleaner)
    path.write_bytes(msgspec.json.encode(answer))


@cache
def _fields() -> set[str]:
    """Our own names. Any other name may be a secret."""
    answers = [route.answer for route in ROUTES]
    schemas = msgspec.json.schema_components(answers)[1].values()
    return {name for schema in schemas for name in schema.get("properties", ())}


def _cleaned(value: Any, cleaner: Cleaner, key: str = "") -> Any:
    """An answer with everything cleaned but our own names and ids, which are hashes."""
    if key in _FREE:
        return clean_json(value, cleaner.deep)
    if isinstance(value, dict):
        return {
            name if name in _fields() else cleaner.text(name): _cleaned(item, cleaner, name)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, cleaner) for item in value]
    if key in NAMES:
        return cleaner.name(value)
    if isinstance(value, str):
        return value if key == "id" and _is_hash(value) else cleaner.deep(value)
    return value


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16,}", text) is not None
