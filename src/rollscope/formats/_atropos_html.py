"""The page that Atropos' `jsonl2html` makes, back to texts."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import IO, NamedTuple

from ..model import Message

_PLACE = re.compile(r"group-(\d+)-item-(\d+)")
_TURN = re.compile(r"(?:\A|\n\n)\*\*([A-Z]\w*)\*\*: ?")
_ROLES = {"system", "user", "assistant", "agent", "tool", "environment", "developer", "function"}
_BLOCKS = {"p", "ul", "ol", "pre", "blockquote", "hr", "table", *(f"h{n}" for n in range(1, 7))}
_INLINE = {"a", "img", "thead", "tbody", "dl", "dt", "dd", "span"}
_MARKS = {"strong": "**", "em": "*", "code": "`"}
"""What Markdown writes at both ends of these."""
_CELLS = {"tr", "td", "th"}
_CHUNK = 1 << 16


class Item(NamedTuple):
    """One rollout of the page."""

    group: int
    number: int
    """Its place in the group."""
    text: str
    score: str

    def messages(self) -> list[Message]:
        """Its turns, if the page names them (`**User**: ...`); else none."""
        turns = [m for m in _TURN.finditer(self.text) if m[1].lower() in _ROLES]
        if not turns or turns[0].start() != 0:
            return []
        stops = [turn.start() for turn in turns[1:]] + [len(self.text)]
        return [
            Message(role=turn[1].lower(), content=self.text[turn.end() : stop])
            for turn, stop in zip(turns, stops, strict=True)
        ]


def items(file: IO[bytes]) -> Iterator[Item]:
    """Every rollout of the page, in its order."""
    page, decoder = _Page(), codecs.getincrementaldecoder("utf-8")("replace")
    while data := file.read(_CHUNK):
        page.feed(decoder.decode(data))
        yield from page.taken()
    page.close()
    yield from page.taken()


class _Page(HTMLParser):
    """Collects items. Tags that Markdown does not make were written by the policy (`<think>`) and
    are kept as its text."""

    CDATA_CONTENT_ELEMENTS = RCDATA_CONTENT_ELEMENTS = ()  # type: ignore[misc]
    """A policy's `<script>` is text like any other."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._items: list[Item] = []
        self._place: tuple[int, int] | None = None
        self._is_pre = False
        self._cells = 0
        self._divs = 0
        """Divisions that are open inside the text."""
        self._text: list[str] | None = None
        self._said = ""
        self._score: list[str] | None = None

    def taken(self) -> list[Item]:
        done, self._items = self._items, []
        return done

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        if self._text is None:
            kinds = (about.get("class") or "").split()
            if tag == "div" and "item" in kinds:
                found = _PLACE.fullmatch(about.get("id") or "")
                self._place = (int(found[1]), int(found[2])) if found else None
            elif tag == "div" and "content-block" in kinds:
                self._text, self._divs = [], 1
            elif tag == "p" and self._place is not None:
                self._score = []
            return
        if tag == "div":
            self._divs += 1
        if tag in _BLOCKS:
            self._break()
            if tag == "pre":
                self._is_pre = True
                self._text.append("```\n")
        elif tag == "br":
            self._text.append("\n")
        elif tag == "li":
            self._line("- ")
        elif tag in _MARKS:
            self._mark(tag)
        elif tag in _CELLS:
            self._cell(tag)
        elif tag not in _INLINE:
            self._text.append(self.get_starttag_text() or f"<{tag}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._text is None:
            if tag == "p" and self._score is not None and self._place is not None:
                score = "".join(self._score).partition("Reward:")[2].strip()
                self._items.append(Item(*self._place, self._said, score))
                self._place = self._score = None
            return
        if tag == "div":
            self._divs -= 1
            if not self._divs:
                self._said, self._text = "".join(self._text).strip("\n"), None
                return
        if tag == "pre":
            self._is_pre = False
            self._line("```")
        elif tag in _MARKS:
            self._mark(tag)
        elif tag not in (*_BLOCKS, *_CELLS, *_INLINE, "li", "br"):
            self._text.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            is_layout = data.isspace() and "\n" in data
            if not is_layout:
                last = self._text[-1] if self._text else "\n"
                self._text.append(data.removeprefix("\n") if last.endswith("\n") else data)
        elif self._score is not None:
            self._score.append(data)

    def _mark(self, tag: str) -> None:
        assert self._text is not None
        if not self._is_pre:
            self._text.append(_MARKS[tag])

    def _cell(self, tag: str) -> None:
        assert self._text is not None
        if tag == "tr":
            self._cells = 0
            self._line("")
        else:
            self._text.append(" | " if self._cells else "")
            self._cells += 1

    def _break(self) -> None:
        """A blank line between blocks."""
        assert self._text is not None
        if self._text:
            self._text.append("\n\n")

    def _line(self, mark: str) -> None:
        assert self._text is not None
        is_fresh = bool(self._text) and self._text[-1].endswith("\n")
        self._text.append(mark if is_fresh else f"\n{mark}")
