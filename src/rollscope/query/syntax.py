r"""The shape of a query: text in, a tree with positions out.

    query  = [ any ]
    any    = all { "OR" all }
    all    = one { [ "AND" ] one }
    one    = ( "-" | "NOT" ) one | "(" any ")" | term
    term   = [ key ":" ] value                     without a key: a text term
           | key ":" value { "," value }
    value  = quoted | regex | word
    key    = name { "." ( name | quoted ) }
    quoted = '"' { any character, `\"` or `\\` } '"'
    regex  = "/" { any character, `\/` } "/" [ "i" ]
    word   = anything up to a space, a `)` that it did not open, or (after a key) a `,`

What a value means (a number, a range, a text) depends on its key: see `keys` and `values`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .errors import QueryError


@dataclass(frozen=True, slots=True)
class Value:
    """One value as it was written, without its quotes or slashes."""

    kind: Literal["word", "quoted", "regex"]
    text: str
    start: int
    end: int
    fold: bool = False
    """A regex that ends in `/i`: upper and lower case are the same."""


@dataclass(frozen=True, slots=True)
class Term:
    """`key:value,value`, or a bare value (`key` is None)."""

    key: tuple[str, ...] | None
    """The pieces between dots."""
    values: tuple[Value, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]


Node = Term | Not | And | Or

MAX_DEPTH = 100
"""Parentheses and negations nested deeper than this are refused, not recursed into."""

MAX_TERMS = 100
"""More terms than this are refused. Each text term looks at every text, and the engine needs
gigabytes to prepare a few hundred of them. Many values of one key are one term (`id:a,b,c`)."""

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_PIECE = re.compile(r"[^\s:.,()\"]+")
_KEYWORD = re.compile(r"(OR|AND|NOT)(?=[\s()]|$)")


CheckKey = Callable[[tuple[str, ...], str, int, int], object]
"""Raises if there is no such key: its pieces, the query, where it starts and ends."""


def parse(text: str, check_key: CheckKey) -> Node:
    """The tree of a query. An empty one is `And(())`: everything."""
    return _Parser(text, check_key).query()


def key_pieces(text: str) -> tuple[str, ...] | None:
    """The pieces between dots of a key that stands as a value, as in `has:meta.lang`."""
    parser = _Parser(f"{text}:", lambda *_: None)
    try:
        pieces = parser.key()
    except QueryError:
        return None
    return pieces if parser.at == len(text) + 1 else None


def written_piece(name: str) -> str:
    """A name after a dot of a key, in quotes if it needs them."""
    if _PIECE.fullmatch(name):
        return name
    plain = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


class _Parser:
    """Recursive descent over the characters; `at` is the next one."""

    def __init__(self, text: str, check_key: CheckKey) -> None:
        self.text = text
        self.check_key = check_key
        self.at = 0
        self.depth = 0
        self.terms = 0

    def query(self) -> Node:
        self.space()
        if self.at == len(self.text):
            return And(())
        node = self.any()
        if self.at < len(self.text):
            raise self.error("this ) closes nothing", self.at, self.at + 1)
        return node

    def any(self) -> Node:
        parts = [self.all()]
        while self.keyword("OR"):
            parts.append(self.all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def all(self) -> Node:
        parts = [self.one()]
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.peek_keyword() == "OR":
                break
            self.keyword("AND")
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def one(self) -> Node:
        start = self.at
        if self.depth >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}", start, start + 1)
        self.depth += 1
        node = self.nested()
        self.depth -= 1
        self.space()
        return node

    def nested(self) -> Node:
        start, char = self.at, self.text[self.at : self.at + 1]
        word = self.peek_keyword()
        if not char or char == ")" or word in ("OR", "AND"):
            shown = f" before {word or char}" if word or char else " at the end"
            raise self.error(f"a term is missing{shown}", start, start + len(word or char))
        if word == "NOT" or char == "-":
            self.at += len(word or char)
            self.space()
            if self.at == len(self.text):
                raise self.error(f"nothing follows {word or char}", start, self.at)
            return Not(self.one())
        if char == "(":
            self.at += 1
            self.space()
            node = self.any()
            if self.text[self.at : self.at + 1] != ")":
                raise self.error("this ( is never closed", start, start + 1)
            self.at += 1
            return node
        return self.term()

    def term(self) -> Term:
        start = self.at
        self.terms += 1
        if self.terms > MAX_TERMS:
            what = f"more than {MAX_TERMS} terms; values of one key can be listed: task:a,b,c"
            raise self.error(what, start, len(self.text))
        key = self.key()
        if key is None:
            value = self.value(in_list=False)
            return Term(None, (value,), start, self.at)
        values = [self.value(in_list=True)]
        while self.text[self.at : self.at + 1] == ",":
            self.at += 1
            values.append(self.value(in_list=True))
        return Term(key, tuple(values), start, self.at)

    def key(self) -> tuple[str, ...] | None:
        """The key and its colon. None, with nothing consumed, if this is not a key."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            return None
        pieces, at = [match.group()], match.end()
        while self.text[at : at + 1] == ".":
            if self.text[at + 1 : at + 2] == '"':
                piece, at = self.quoted(at + 1)
                pieces.append(piece)
            elif match := _PIECE.match(self.text, at + 1):
                pieces.append(match.group())
                at = match.end()
            else:
                return None
        if self.text[at : at + 1] != ":":
            return None
        self.check_key(tuple(pieces), self.text, self.at, at)
        self.at = at + 1
        return tuple(pieces)

    def value(self, in_list: bool) -> Value:
        start, char = self.at, self.text[self.at : self.at + 1]
        if char == '"':
            text, self.at = self.quoted(start)
            self.ends("quote", start, in_list)
            return Value("quoted", text, start, self.at)
        if char == "/":
            text, self.at = self.regex(start)
            fold = self.text[self.at : self.at + 1] == "i"
            self.at += fold
            self.ends("slash", start, in_list)
            return Value("regex", text, start, self.at, fold)
        return self.word(in_list)

    def word(self, in_list: bool) -> Value:
        start, opened = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char.isspace() or (char == "," and in_list) or (char == ")" and not opened):
                break
            opened += (char == "(") - (char == ")")
            self.at += 1
        if self.at == start:
            what = "a value is missing" if in_list else "a term is missing"
            raise self.error(what, start, start + 1)
        return Value("word", self.text[start : self.at], start, self.at)

    def quoted(self, start: int) -> tuple[str, int]:
        return self.enclosed(start, '"', '"\\', "quote is never closed")

    def regex(self, start: int) -> tuple[str, int]:
        what = 'pattern is never closed by a / (put text that begins with / into "...")'
        return self.enclosed(start, "/", "/", what)

    def enclosed(self, start: int, mark: str, escaped: str, what: str) -> tuple[str, int]:
        """The text between two marks and where it ends; `\\` before one of `escaped` goes."""
        out: list[str] = []
        at = start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == mark:
                return "".join(out), at + 1
            if char == "\\" and at + 1 < len(self.text):
                at += 1
                char = self.text[at] if self.text[at] in escaped else "\\" + self.text[at]
            out.append(char)
            at += 1
        raise self.error(f"this {what}", start, len(self.text))

    def ends(self, mark: str, start: int, in_list: bool) -> None:
        """After a closing mark the value must be over."""
        char = self.text[self.at : self.at + 1]
        if char and not char.isspace() and char != ")" and not (in_list and char == ","):
            what = f"a space is missing after the closing {mark}"
            if mark == "slash":
                what += ' (put text that begins with / into "...")'
            raise self.error(what, start, self.at + 1)

    def peek_keyword(self) -> str:
        match = _KEYWORD.match(self.text, self.at)
        return match.group(1) if match else ""

    def keyword(self, word: str) -> bool:
        if self.peek_keyword() != word:
            return False
        self.at += len(word)
        self.space()
        return True

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def error(self, what: str, start: int, end: int) -> QueryError:
        return QueryError(what, self.text, start, end)
