"""How records show themselves in a notebook: plain HTML, escaped, self-contained.

Rollout text is hostile. Everything goes through `text`, which escapes it and writes out characters
that hide or reverse text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .schema import scalars

if TYPE_CHECKING:
    from .records import Message, Rollout

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)

_HUES = {"user": "#2f6fb5", "assistant": "#6546b8", "tool": "#a8680f"}
_BOX = "font:13px/1.5 system-ui,sans-serif;max-width:900px"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;font:12px/1.5 ui-monospace,monospace;margin:0"
_CELL = "text-align:left;padding:2px 10px;border-bottom:1px solid #8883"

MESSAGES = 40
CHARS = 4000


def text(value: Any, most: int = CHARS) -> str:
    """A value as escaped text, cut to `most` characters."""
    if value is None:
        return "–"
    said = value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else None
    if said is None:
        said = value.decode() if isinstance(value, bytes) else _json(value)
    cut = f"… ({len(said) - most:,} more characters)" if len(said) > most else ""
    seen = _HIDDEN.sub(lambda m: f"⟦U+{ord(m.group()):04X}⟧", said[:most])
    return html.escape(seen + cut)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """A table of values."""
    head = "".join(f'<th style="{_CELL}">{text(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{text(cell, 120)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    below = f'<div style="opacity:.7">{text(note)}</div>' if note else ""
    return (
        f'<div style="{_BOX}"><table style="border-collapse:collapse">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


_WHERE = ("id", "key", "project", "run", "launch", "worker", "group")
"""Names that say where a rollout belongs; the line above its messages says what became of it."""


def rollout(record: Rollout) -> str:
    """A rollout: its outcome, then its messages."""
    facts = {
        **scalars(record, without=_WHERE),
        **record.rewards,
        "reference": record.reference,
    }
    line = " · ".join(
        f"{text(name)} <b>{text(value, 200)}</b>"
        for name, value in facts.items()
        if value is not None
    )
    shown = "".join(_message(n, m) for n, m in enumerate(record.messages[:MESSAGES]))
    left = len(record.messages) - MESSAGES
    more = f"<div>{left} more messages</div>" if left > 0 else ""
    return f'<div style="{_BOX}"><div>{line}</div>{shown}{more}</div>'


Side = Sequence[tuple[bool, str]]
"""Runs of a text: (is it the same on the other side?, text)."""


def side_by_side(rows: Iterable[tuple[str, Side, Side]]) -> str:
    """A comparison: for each row a title and both sides."""
    made = []
    for title, a, b in rows:
        cells = "".join(
            f'<td style="{_CELL};width:50%;vertical-align:top">'
            f'<pre style="{_TEXT}">{_marked(side)}</pre></td>'
            for side in (a, b)
        )
        head = f'<td colspan="2" style="opacity:.7">{text(title)}</td>'
        made.append(f"<tr>{head}</tr><tr>{cells}</tr>")
    style = "border-collapse:collapse;width:100%"
    return f'<div style="{_BOX}"><table style="{style}">{"".join(made)}</table></div>'


def _marked(side: Side) -> str:
    style = "background:#f9731655;color:inherit"
    return "".join(
        text(t) if same else f'<mark style="{style}">{text(t)}</mark>' for same, t in side
    )


def _message(n: int, message: Message) -> str:
    hue = _HUES.get(message.role, "#7a7f8a")
    content = message.content
    if content is None or isinstance(content, str):
        said = content or ""
    else:
        said = "".join(part.text or f"[{part.type}]" for part in content)
    calls = "".join(
        f'<pre style="{_TEXT};opacity:.8">→ {text(c.name)}({text(c.arguments, 1000)})</pre>'
        for c in message.tool_calls
    )
    name = f" {text(message.name)}" if message.name else ""
    return (
        f'<div style="border-left:3px solid {hue};padding:2px 10px;margin:6px 0">'
        f'<div style="color:{hue}"><b>{text(message.role)}</b>{name} #{n}</div>'
        f'<pre style="{_TEXT}">{text(said)}</pre>{calls}</div>'
    )


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
