"""JSON as other programs write it: too long for memory, torn, or not quite JSON.

Python writes NaN and Infinity, some programs put a byte order mark before it, and a byte may be
no UTF-8. Parsers that stream refuse the first; here all three are read.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any, Literal

from ..adapters._lines import LARGEST, MB

_CHUNK = MB
_BLANK = " \t\r\n"
_BEHIND = _BLANK + ",:]}"
_decode = json.JSONDecoder().raw_decode

Kind = Literal["object", "list", "other", "end"]


class TooLarge(ValueError):
    """A value of more bytes than are read at once."""


class Scanner:
    """Stands before a value of a stream. It takes the value whole, or enters it.

    Time is linear in the length of the stream. Memory holds the largest value that is taken.
    """

    def __init__(self, file: IO[bytes], largest: int = LARGEST) -> None:
        self._file = file
        self._largest = largest
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._text = ""
        self._at = 0
        self._is_end = False
        self._dropped = 0

    @property
    def passed(self) -> int:
        """How many characters lie behind us."""
        return self._dropped + self._at

    def kind(self) -> Kind:
        """What comes next."""
        char = self._peek()
        return "end" if not char else {"{": "object", "[": "list"}.get(char, "other")  # type: ignore[return-value]

    def skip(self) -> None:
        """Pass over the value, whatever its size."""
        try:
            self.value(_CHUNK)
        except TooLarge:
            if self.kind() == "other":
                raise
            for _ in self.members() if self.kind() == "object" else self.items():
                self.skip()

    def value(self, largest: int | None = None) -> Any:
        """The whole value. After `TooLarge` it can still be entered."""
        largest = self._largest if largest is None else largest
        self._peek()
        while True:
            try:
                value, end = _decode(self._text, self._at)
                if self._is_end or self._ends(value, end):
                    self._at = end
                    return value
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._is_end or not _may_go_on(error, self._text):
                    raise ValueError(f"{error.msg} at {self._around(error.pos)}") from None
            if len(self._text) - self._at > largest:
                raise TooLarge(f"a value of more than {largest // MB} MB")
            self._more()

    def items(self) -> Iterator[int]:
        """Enter a list: stands before each item in turn. An item that is not taken is skipped."""
        self._take("[")
        number = 0
        while self._peek() != "]":
            place = self._place()
            yield number
            if self._place() == place:
                self.skip()
            number += 1
            self._separated("]")
        self._take("]")

    def members(self) -> Iterator[str]:
        """Enter an object: the name of each member in turn, standing before its value."""
        self._take("{")
        while self._peek() != "}":
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"expected a name, found {name!r:.60}")
            self._take(":")
            place = self._place()
            yield name
            if self._place() == place:
                self.skip()
            self._separated("}")
        self._take("}")

    # -- pieces ----------------------------------------------------------------------------

    def _place(self) -> int:
        self._peek()
        return self.passed

    def _peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANK:
                    return self._text[self._at]
                self._at += 1
            if self._is_end:
                return ""
            self._more()

    def _ends(self, value: Any, end: int) -> bool:
        """Does it end there? A number may go on in the next chunk: `1`, `1.`, `1.5e`."""
        if end == len(self._text):
            return False
        return not isinstance(value, (int, float)) or self._text[end] in _BEHIND

    def _take(self, char: str) -> None:
        found = self._peek()
        if found != char:
            what = repr(found) if found else "the end"
            raise ValueError(f"expected {char!r}, found {what} at {self._around(self._at)}")
        self._at += 1

    def _separated(self, end: str) -> None:
        if self._peek() != end:
            self._take(",")

    def _more(self) -> None:
        """Read on. What is not taken yet doubles, so that a large value is parsed a few times, not
        once a chunk."""
        left = len(self._text) - self._at
        data = self._file.read(max(_CHUNK, left))
        self._is_end = not data
        self._dropped += self._at
        self._text, self._at = self._text[self._at :] + self._decoder.decode(data, not data), 0

    def _around(self, at: int) -> str:
        said = self._text[max(0, at - 20) : at + 20]
        return repr(said) if said else "the end of the file"


def _may_go_on(error: json.JSONDecodeError, text: str) -> bool:
    """Is the value perhaps only cut off by the end of what was read?"""
    return error.pos >= len(text) - len("-Infinity") or error.msg.startswith("Unterminated")


def head(file: IO[bytes], largest: int = 16 * MB) -> Any:
    """The first value of a stream; of a list its first item. Of an object that is larger, the
    members that come before it gets too large: enough to recognise it by. None: there is none."""
    scanner = Scanner(file, largest)
    try:
        if scanner.kind() == "list":
            next(scanner.items(), None)
        if scanner.kind() != "object":
            return None
        return scanner.value()
    except TooLarge:
        found: dict[str, Any] = {}
        for name in scanner.members():
            found[name] = [] if scanner.kind() == "list" else {}
            try:
                found[name] = scanner.value()
            except TooLarge:
                break
            if scanner.passed > largest:
                break
        return found
