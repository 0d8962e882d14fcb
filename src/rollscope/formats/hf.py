"""A Hugging Face dataset directory: `datasets.load_dataset("folder")`, or push it to the Hub.

    folder/
    ├─ README.md                 the dataset card: splits, columns, where it comes from
    └─ data/<split>-00000.parquet

Messages are lists of structs of one shape, so that every row has the same features; arguments of
tools and other values without a fixed shape are JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import Message, Rollout
from ..model.chat import to_chat
from ..model.cleaner import Cleaner
from ..model.problem import Problem
from ..model.schema import FIELDS
from ..store.read.reader import Reader
from ._body import decode
from ._encode import field, text
from ._export import ExportPlan, ExportState
from ._rows import columns, rollouts
from ._tables import TableRow, Tables

MESSAGE = (
    "STRUCT(role VARCHAR, content VARCHAR, reasoning_content VARCHAR, name VARCHAR, "
    "tool_calls STRUCT(id VARCHAR, type VARCHAR, "
    'function STRUCT("name" VARCHAR, arguments VARCHAR))[], '
    "tool_call_id VARCHAR, parent INTEGER, sampled BOOLEAN, stop_reason VARCHAR, reward DOUBLE, "
    "parts VARCHAR, token_ids INTEGER[], logprob FLOAT[], meta VARCHAR)[]"
)
COLUMNS = {
    "id": "VARCHAR",
    "messages": MESSAGE,
    **{c.name: c.type if c.is_scalar else "VARCHAR" for c in FIELDS if c.name != "id"},
    "error": "VARCHAR",
    "spans": "VARCHAR",
}
"""JSON text: rewards, reward_texts, error, sampling, reference, meta, spans; in messages: parts,
meta, arguments."""

_JSON = (*(column.name for column in FIELDS if not column.is_scalar), "error", "spans")
_TELLING = {"id", "messages", "spans", "reward_texts", "fate"}
"""Columns by which a file is recognised."""
NO_SPLIT = "rollouts"
"""The split of rollouts that have none."""


def writer(reader: Reader, plan: ExportPlan, cleaner: Cleaner | None) -> Tables:
    about = f"Query: `{plan.query}`." if plan.query else ""
    if plan.redact:
        about += f" Redacted: {', '.join(plan.redact)}."
    said = about if cleaner is None else cleaner.text(about)
    return Tables(COLUMNS, row, lambda folder, state: card(folder, state, said))


def recognise(path: Path) -> bool:
    """A Parquet file of such a dataset."""
    return path.is_file() and path.suffix == ".parquet" and columns(path) >= _TELLING


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Every row as the rollout that it was made of."""
    return rollouts(path, _rollout)


def _rollout(found: dict[str, Any]) -> Rollout:
    body = {name: value for name, value in found.items() if value is not None}
    for name in _JSON:
        if name in body:
            body[name] = json.loads(body[name])
    body["messages"] = [_chat_message(message) for message in body.get("messages") or ()]
    return decode(body)


def _chat_message(body: dict[str, Any]) -> dict[str, Any]:
    made = {name: value for name, value in body.items() if value not in (None, [])}
    if "parts" in made:
        made["content"] = json.loads(made.pop("parts"))
    if "meta" in made:
        made["meta"] = json.loads(made["meta"])
    streams = {"ids": made.pop("token_ids", None), "logprob": made.pop("logprob", None)}
    if known := {name: values for name, values in streams.items() if values is not None}:
        made["tokens"] = known
    return {"content": None, **made}


def row(rollout: Rollout) -> TableRow:
    """A rollout as a row of its split."""
    values = {
        name: getattr(rollout, name)
        for name in COLUMNS
        if name not in ("messages", *_JSON) and getattr(rollout, name) is not None
    }
    values["task"] = None if rollout.task is None else str(rollout.task)
    for name in _JSON:
        values[name] = field(rollout, name)
    values["messages"] = [_message(message) for message in rollout.messages]
    return TableRow(f"data/{split_name(rollout.split)}", values)


def split_name(split: str | None) -> str:
    """A name that the library takes: letters, digits and underscores."""
    return re.sub(r"\W+", "_", split or NO_SPLIT, flags=re.ASCII).strip("_") or NO_SPLIT


def card(folder: Path, state: ExportState, about: str) -> None:
    """`README.md`: which files are which split, and what the columns are."""
    names = sorted({path.name.rpartition("-")[0] for path in (folder / "data").glob("*.parquet")})
    files = "\n".join(f"  - split: {name}\n    path: data/{name}-*.parquet" for name in names)
    columns = "\n".join(f"| `{name}` | {_kind(name)} |" for name in COLUMNS)
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}\n"
        "tags:\n- rollscope\n- rollouts\n- reinforcement-learning\n---\n\n"
        f"# Rollouts\n\n{state.lines:,} rollouts, exported by Rollscope. {about}\n\n"
        f'    datasets.load_dataset("{folder.name if folder.name != "out" else "."}")\n\n'
        f"| column | holds |\n|---|---|\n{columns}\n"
    )


def _message(message: Message) -> dict[str, Any]:
    chat = to_chat(message)
    body: dict[str, Any] = {k: v for k, v in chat.items() if v is not None}
    if isinstance(body.get("content"), list):
        texts = [part.get("text") or "" for part in body["content"]]
        body |= {"parts": text(body["content"]), "content": "".join(texts)}
    body["tool_calls"] = chat.get("tool_calls", [])
    known = ("parent", "sampled", "stop_reason", "reward")
    body |= {name: getattr(message, name) for name in known if getattr(message, name) is not None}
    if message.tokens is not None:
        tokens = message.tokens.normalised()
        if tokens is not None:
            body |= {"token_ids": tokens.ids, "logprob": tokens.logprob}
    if message.meta:
        body["meta"] = text(message.meta)
    return body


def _kind(name: str) -> str:
    if name == "messages":
        return "role, content, reasoning_content, tool_calls, ...: a struct each"
    return "JSON text" if name in _JSON else COLUMNS[name].lower()
