"""A rollout as a person reads it in a terminal: turn by turn, long parts folded.

Rollout text is hostile: nothing in it is taken as markup, and control characters (terminal
escapes, bidi overrides) are shown as what they are instead of being obeyed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from ..model import Message, Part, Rollout, ToolCall, conversation
from ..model.chat import as_text as as_text
from ..model.counted import counted
from ..model.schema import scalars

ROLE_COLOURS = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}
MISSING = "–"
FOLD_LINES, FOLD_CHARS = 12, 1200


def number(value: float | int | None) -> str:
    """A number for a table: short, and missing stays visibly missing."""
    if value is None:
        return MISSING
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return f"{value:.4g}"


def safe(text: str) -> str:
    """Text without anything that a terminal would obey."""
    return "".join(_visible(c) if _odd(c) else c for c in text)


def one_line(text: str | None, width: int) -> str:
    """The beginning of a text, on one line of at most `width` characters."""
    if text is None:
        return MISSING
    flat = " ".join(safe(text[: 4 * width]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def rollout(r: Rollout, *, full: bool = False, stream: str | None = None) -> Group:
    """The whole rollout. `full` unfolds; `stream` colours tokens by that stream."""
    lines: list[RenderableType] = [header(r)]
    for n, message in enumerate(r.messages):
        lines += message_lines(n, message, full=full, stream=stream)
    if r.spans:
        lines += [Rule("spans", style="dim", align="left"), *_spans(r)]
    return Group(*lines)


_SHOWN = ("id", "project", "run", "step", "split", "task", "index", "attempt", "group", "reward",
          "advantage", "fate", "fate_reason", "stop_reason", "truncated",
          "trained_step")  # fmt: skip
"""Scalars that the header shows by themselves; any others stand in a line of their own."""


def _value(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def header(r: Rollout) -> Text:
    """Where it stands and what became of it."""
    text = Text()
    text.append(safe(f"{r.project or MISSING}/{r.run or MISSING}"), style="bold")
    place = [
        f"step {number(r.step)}",
        f"split {r.split or MISSING}",
        f"task {r.task if r.task is not None else MISSING}",
        f"index {number(r.index)}",
    ]
    if r.attempt:
        place.append(f"attempt {r.attempt}")
    text.append("  " + " · ".join(safe(p) for p in place) + "\n")
    text.append(safe(f"id {r.id}"), style="dim")
    if r.group:
        text.append(f"  group {safe(r.group)}", style="dim")
    text.append("\nreward ")
    text.append(number(r.reward), style=_reward_style(r.reward))
    for name, value in r.rewards.items():
        text.append(f"  {safe(name)} {number(value)}", style="dim")
    text.append(f"\nadvantage {number(r.advantage)} · fate {safe(r.fate or MISSING)}")
    if r.fate_reason:
        text.append(f" ({safe(r.fate_reason)})")
    text.append(f" · stop {safe(r.stop_reason or MISSING)}")
    if r.truncated:
        text.append(" · truncated", style="red")
    if r.trained_step is not None:
        text.append(f" · trained at {r.trained_step}")
    others = [f"{name} {_value(value)}" for name, value in scalars(r, without=_SHOWN).items()]
    if others:
        text.append("\n" + safe(" · ".join(others)), style="dim")
    if r.error is not None:
        kind = "/".join(safe(x) for x in (r.error.kind, r.error.type) if x)
        text.append(f"\nerror {kind}: {safe(r.error.text or '')}", style="red")
    for name, words in r.reward_texts.items():
        text.append(f"\njudge of {safe(name)}: {one_line(words, 200)}", style="italic")
    if r.reference is not None:
        text.append(f"\nreference {one_line(as_text(r.reference), 200)}")
    return text


def message_lines(
    n: int, message: Message, *, full: bool, stream: str | None
) -> Iterator[RenderableType]:
    colour = ROLE_COLOURS.get(message.role, "white")
    title = f"{n} {message.role}" + (f" {message.name}" if message.name else "")
    notes = []
    if message.parent is not None:
        notes.append("new conversation" if message.parent == -1 else f"after {message.parent}")
    if message.tokens is not None:
        notes.append(counted(len(message.tokens), "token"))
    if message.stop_reason:
        notes.append(message.stop_reason)
    if message.reward is not None:
        notes.append(f"reward {number(message.reward)}")
    heading = Text(safe(title), style=f"bold {colour}")
    if notes:
        heading.append("  " + safe(" · ".join(notes)), style="dim")
    yield Rule(heading, style=colour, align="left")
    coloured = _coloured(message, stream) if stream else None
    if coloured is not None:
        yield coloured
    elif isinstance(message.content, list):
        yield from (_part(part, full) for part in message.content)
    elif message.content is not None:
        yield Text(_folded(message.content, full))
    for call in message.tool_calls:
        yield _call(call, full)
    if stream and coloured is None:
        yield Text(f"no stream {stream!r} with token ends here", style="dim")


# -- pieces ----------------------------------------------------------------------------


def _part(part: Part, full: bool) -> Text:
    if part.call is not None:
        return _call(part.call, full)
    if part.image is not None:
        return Text(f"[image {one_line(part.image, 60)}]", style="dim")
    style = "italic dim" if part.type == "reasoning" else ""
    if part.text is None:
        return Text(f"[{safe(part.type)}] {one_line(as_text(part.data), 120)}", style="dim")
    return Text(_folded(part.text, full or part.type != "reasoning"), style=style)


def _call(call: ToolCall, full: bool) -> Text:
    text = Text("→ ", style="yellow")
    text.append(safe(call.name or "?"), style="bold yellow")
    text.append("(" + _folded(as_text(call.arguments), full) + ")", style="yellow")
    return text


def _folded(text: str, full: bool) -> str:
    if full or (len(text) <= FOLD_CHARS and text.count("\n") < FOLD_LINES):
        return safe(text)
    kept = "\n".join(text[:FOLD_CHARS].split("\n")[:FOLD_LINES])
    return f"{safe(kept)}\n… {counted(len(text) - len(kept), 'more character')} (--full)"


def _coloured(message: Message, stream: str) -> Text | None:
    """The text, each token tinted by its value; None if values or ends are missing."""
    tokens = message.tokens
    values = None if tokens is None else tokens.streams.get(stream)
    if tokens is None or values is None or tokens.ends is None:
        return None
    whole = conversation.text(message)
    known = [v for v in values if v is not None and math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    text, start = Text(), 0
    for end, value in zip(tokens.ends, values, strict=False):
        text.append(safe(whole[start:end]), style=_tint(value, low, high))
        start = max(start, end)
    text.append(safe(whole[start:]))
    text.append(f"\n{safe(stream)}: {number(low)} … {number(high)}", style="dim")
    return text


def _tint(value: float | None, low: float, high: float) -> str:
    if value is None or not math.isfinite(value):
        return "dim"
    share = 0.5 if high == low else (value - low) / (high - low)
    red, green = int(70 + 130 * (1 - share)), int(60 + 110 * share)
    return f"on rgb({red},{green},60)"


def _spans(r: Rollout) -> Iterator[Text]:
    depth: dict[str | None, int] = {None: -1}
    for span in r.spans:
        level = depth.get(span.parent, -1) + 1
        depth[span.id] = level
        text = Text("  " * level + safe(span.name))
        if span.start is not None and span.end is not None:
            text.append(f"  {span.end - span.start:.3f} s", style="dim")
        if span.error is not None:
            text.append(f"  {safe(span.error.type or '')} {safe(span.error.text or '')}", "red")
        yield text


def _reward_style(reward: float | None) -> str:
    if reward is None or math.isnan(reward):
        return "dim"
    return "bold green" if reward > 0 else "bold red"


def _odd(c: str) -> bool:
    return c not in "\n\t\u200d" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co")


def _visible(c: str) -> str:
    code = ord(c)
    return chr(0x2400 + code) if code < 32 else f"⟨U+{code:04X}⟩"
