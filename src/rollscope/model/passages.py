"""What a message consists of: what is said, what is thought, and where it may be cut to be shown.

Only who has the whole text can tell. A reader that looks at a window of it cannot know whether a
thought is closed further on, or whether a line stands inside a block of code. So this is told by
position, and readers fetch the windows that they show.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from . import conversation
from .records import Message

PIECE = 8_000
"""Characters of a piece at most: it is drawn as a whole, which takes a browser some 10 ms."""

Kind = Literal["text", "thinking", "output"]


class Passage(msgspec.Struct, kw_only=True):
    """A stretch of a message's text; `start` and `end` count its characters.

    Marks around thoughts belong to no passage.
    """

    kind: Kind
    """`output`: what a machine wrote."""
    start: int
    end: int
    torn: bool = False
    """A thought whose closing mark never came."""
    part: int | None = None
    """Number of the part, of a message that has parts."""
    cuts: list[int]
    """Where the pieces begin that it may be shown in, one by one."""
    fences: dict[int, str] = {}
    """The line that opened the block of code in which a piece begins, by number of the piece."""


def passages(message: Message) -> list[Passage]:
    """The passages of a message, in order."""
    text = conversation.text(message)
    found = []
    for start, end, part, type in _parts(message):
        for kind, first, last, torn in _kinds(message, text, start, end, type):
            cuts, fences = _cuts(text, first, last, has_code=kind != "output")
            found.append(
                Passage(
                    kind=kind,
                    start=first,
                    end=last,
                    torn=torn,
                    part=part,
                    cuts=cuts,
                    fences=fences,
                )
            )
    return found


def _parts(message: Message) -> Iterator[tuple[int, int, int | None, str]]:
    """Start and end of each part that has a text, its number and type."""
    if not isinstance(message.content, list):
        if message.content:
            yield 0, len(message.content), None, "text"
        return
    start = 0
    for number, part in enumerate(message.content):
        if part.text:
            yield start, start + len(part.text), number, part.type
            start += len(part.text)


class _Stretch(NamedTuple):
    kind: Kind
    start: int
    end: int
    torn: bool = False


def _kinds(message: Message, text: str, start: int, end: int, type: str) -> Iterator[_Stretch]:
    if type == "reasoning":
        yield _Stretch("thinking", start, end)
    elif type == "tool_result" or message.role == "tool":
        yield _Stretch("output", start, end)
    elif type == "text" and (message.role == "assistant" or message.sampled):
        yield from _thoughts(text, start, end)
    else:  # people write these marks only to speak about them
        yield _Stretch("text", start, end)


_OPEN = re.compile("<(think|thinking|reasoning)>")
_CLOSE = re.compile("</(?:think|thinking|reasoning)>")


def _thoughts(text: str, start: int, end: int) -> Iterator[_Stretch]:
    """What is said and what is thought between marks. What is blank is not told."""
    at = start
    opened, closed = _OPEN.search(text, at, end), _CLOSE.search(text, at, end)
    if closed and (opened is None or closed.start() < opened.start()):
        # The template wrote the opening mark; the policy only closed it.
        yield _Stretch("thinking", at, closed.start())
        at = closed.end()
    while opened := _OPEN.search(text, at, end):
        if not _is_blank(text, at, opened.start()):
            yield _Stretch("text", at, opened.start())
        close = f"</{opened[1]}>"
        at = text.find(close, opened.end(), end)
        if at < 0:
            yield _Stretch("thinking", opened.end(), end, torn=True)
            return
        yield _Stretch("thinking", opened.end(), at)
        at += len(close)
    if at == start or not _is_blank(text, at, end):
        yield _Stretch("text", at, end)


_INK = re.compile(r"\S")


def _is_blank(text: str, start: int, end: int) -> bool:
    return _INK.search(text, start, end) is None


# -- pieces ------------------------------------------------------------------------------

_FENCE = re.compile(
    r"^[ \t]{0,20}(?:[-*] |\d{1,9}[.)] )?[ \t]{0,4}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE
)
_PLAIN = re.compile(r"\n[ \t]*\n(?![ \t\n]|[-*+] |\d{1,9}[.)] )")
"""A blank line before a line that begins something new: no item of a list goes on there."""


class _Block(NamedTuple):
    """A fenced block of code, its fences included."""

    start: int
    end: int
    opener: str


def _blocks(text: str, start: int, end: int) -> list[_Block]:
    found = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text, start, end):
        if opened is None:
            if fence[1][0] not in fence[2]:
                opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            found.append(_Block(opened.start(), fence.end(), opened[1] + opened[2].rstrip()))
            opened = None
    if opened is not None:
        found.append(_Block(opened.start(), end, opened[1] + opened[2].rstrip()))
    return found


def _cuts(text: str, start: int, end: int, has_code: bool) -> tuple[list[int], dict[int, str]]:
    cuts, fences = [start], dict[int, str]()
    if end - start <= PIECE:
        return cuts, fences
    blocks = _blocks(text, start, end) if has_code else []
    begins = [block.start for block in blocks]

    def around(place: int) -> _Block | None:
        """The block of code that goes on at a place."""
        at = bisect_right(begins, place) - 1
        return blocks[at] if at >= 0 and blocks[at].start < place < blocks[at].end else None

    while end - cuts[-1] > PIECE:
        low, high = cuts[-1] + PIECE // 2, cuts[-1] + PIECE
        block = around(high)
        if block is not None and block.start > low:
            cut = block.start
        else:
            cut = _boundary(text, low, high, is_code=block is not None or not has_code)
            block = around(cut)
        if block is not None and cut > block.start:
            fences[len(cuts)] = block.opener
        cuts.append(cut)
    return cuts, fences


def _boundary(text: str, low: int, high: int, is_code: bool) -> int:
    """Where a text is best cut: before something new, after a blank line, a line or a word."""
    if not is_code:
        news = [match.end() for match in _PLAIN.finditer(text, low, high)]
        if news:
            return news[-1]
    for end in ("\n\n", "\n", " ") if not is_code else ("\n", " "):
        at = text.rfind(end, low, high)
        if at >= 0:
            return at + len(end)
    return high
