"""Where a message thinks: its parts of type `reasoning`, or what stands between marks."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..model import Message, conversation

_OPENS = re.compile(r"<(think|thinking|reasoning)>")
_CLOSES = re.compile(r"</(think|thinking|reasoning)>")


class Thought(NamedTuple):
    """What a message thinks."""

    chars: int
    """How much, without blanks around it."""
    is_closed: bool
    """Does an answer follow, or could one?"""


def thought(message: Message, text: str) -> Thought | None:
    """None: nothing says that it thinks."""
    content = message.content
    if isinstance(content, list) and any(part.type == "reasoning" for part in content):
        said = "".join(part.text or "" for part in content if part.type == "reasoning")
        goes_on = bool(conversation.answer(message) or conversation.tool_calls(message))
        return Thought(len(said.strip()), goes_on)
    opened, closes = _OPENS.search(text), list(_CLOSES.finditer(text))
    if opened is None and not closes:
        return None
    # Chat templates of some models open the thought in the prompt.
    begin = opened.end() if opened is not None else 0
    end = closes[-1].start() if closes else len(text)
    return Thought(len(text[begin:end].strip()), bool(closes))


def unmarked(text: str) -> str:
    """A text without the marks of thoughts, and without blanks around it."""
    return _CLOSES.sub("", _OPENS.sub("", text)).strip() if "<" in text else text.strip()
