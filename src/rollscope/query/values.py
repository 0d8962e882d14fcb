"""What a value means for its key: `<0.2` is an interval, `zh` a text, `none` no value.

Every number, comparison and range becomes one thing, an interval, and NaN lies in none.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass, field
from typing import Literal

from .errors import QueryError
from .keys import Asked, Key
from .syntax import Value


@dataclass(frozen=True, slots=True)
class Missing:
    """`key:none`."""


@dataclass(frozen=True, slots=True)
class NotANumber:
    """`key:nan`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`; None: open on that side. NaN lies in no interval."""

    low: int | float | None
    high: int | float | None
    low_in: bool = True
    high_in: bool = True

    @property
    def is_empty(self) -> bool:
        """Does it end before it begins, as `5..1`?"""
        return self.low is not None and self.high is not None and self.low > self.high


@dataclass(frozen=True, slots=True)
class Is:
    """`key:true`, `key:false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A text to be found: exactly so, in any case, or by an RE2 pattern."""

    kind: Literal["exact", "fold", "regex"]
    text: str
    start: int = field(default=0, compare=False)
    """Where it stands in the query, for errors in a pattern."""
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Loose:
    """A bare word for a JSON value: that text, or that number (or range)."""

    text: str
    interval: Interval | None


Test = Missing | NotANumber | Interval | Is | Text | Loose

_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf)"
_DATE = r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?Z?)?"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_INT64 = 2**63


def meaning(asked: Asked, value: Value, query: str) -> Test:
    """The test that a value stands for. Raises `QueryError` if it fits its key in no way."""
    key = asked.key
    if value.kind == "word" and value.text == "none":
        return Missing()
    if key.kind in ("number", "time"):
        return _number(key, value, query)
    if key.kind == "bool":
        return _bool(asked, value, query)
    if key.kind == "json" and value.kind == "word":
        return Loose(value.text, _interval(value.text, key))
    if key.kind in ("equal", "member") and value.kind == "word" and value.text[0] in "<>":
        what = f"{asked.name} is a text and takes no {value.text[0]}"
        raise QueryError(f'{what} (quote it: "{value.text}")', query, value.start, value.end)
    return text_test(value, fold=key.kind in ("contains", "text"))


def text_test(value: Value, fold: bool = True) -> Text:
    """The text that a value stands for. A bare word is found in any case where `fold`."""
    if value.kind == "regex":
        pattern = f"(?i){value.text}" if value.fold else value.text
        return Text("regex", pattern, value.start, value.end)
    kind: Literal["exact", "fold"] = "fold" if fold and value.kind == "word" else "exact"
    return Text(kind, value.text, value.start, value.end)


def _number(key: Key, value: Value, query: str) -> Test:
    if value.kind == "word":
        if value.text == "nan":
            return NotANumber()
        interval = _interval(value.text, key)
        if interval is not None:
            return interval
    like = "2026-11-15 or 2026-11-15T10:30.." if key.kind == "time" else "5, >=0.5, 1..9 or none"
    what = f'{key.name} takes a number, not "{value.text}" (like {like})'
    raise QueryError(what, query, value.start, value.end)


def _bool(asked: Asked, value: Value, query: str) -> Is:
    if value.text.lower() in _TRUE:
        return Is(True)
    if value.text.lower() in _FALSE:
        return Is(False)
    what = f'{asked.name} is true, false or none, not "{value.text}"'
    raise QueryError(what, query, value.start, value.end)


def _interval(text: str, key: Key) -> Interval | None:
    """The interval that a comparison, a range or a number stands for; None if it is none of
    these."""
    point = f"{_DATE}|{_NUMBER}" if key.kind == "time" else _NUMBER
    if match := re.fullmatch(rf"(<=|>=|<|>)?({point})", text):
        op, at = match.group(1), _point(match.group(2))
        interval = {
            None: at,
            "<": Interval(None, at.low, high_in=False),
            "<=": Interval(None, at.high, high_in=at.high_in),
            ">": Interval(at.high, None, low_in=not at.high_in),
            ">=": Interval(at.low, None),
        }[op]
    elif (match := re.fullmatch(rf"({point})?\.\.({point})?", text)) and any(match.groups()):
        low, high = (None if end is None else _point(end) for end in match.groups())
        interval = Interval(
            None if low is None else low.low,
            None if high is None else high.high,
            high_in=high is None or high.high_in,
        )
    else:
        return None
    return _whole(interval) if key.whole else interval


def _point(text: str) -> Interval:
    """A number, or the day, minute or second that a date names (UTC)."""
    if "-" not in text[1:] or "e" in text.lower():
        return Interval(number := _parsed(text), number)
    plain = text.removesuffix("Z")
    seconds = {10: 86400, 16: 60}.get(len(plain), 1)
    start = _timestamp(plain)
    return Interval(start, start + seconds, high_in=False)


def _timestamp(text: str) -> float:
    try:
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:  # there is no such day: nothing lies there
        return math.inf
    return parsed.replace(tzinfo=datetime.UTC).timestamp()


def _parsed(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[+-]?\d{1,19}", text) else float(text)


def _whole(interval: Interval) -> Interval:
    """The same whole numbers, with whole ends that the engine's BIGINT can hold."""
    low = high = None
    if interval.low is not None and interval.low != -math.inf:
        low = _INT64 if interval.low == math.inf else math.ceil(interval.low)
        low += low == interval.low and not interval.low_in
    if interval.high is not None and interval.high != math.inf:
        high = -_INT64 - 1 if interval.high == -math.inf else math.floor(interval.high)
        high -= high == interval.high and not interval.high_in
    if (low is not None and low >= _INT64) or (high is not None and high < -_INT64):
        return Interval(1, 0)  # beyond every whole number: nothing
    return Interval(
        None if low is None else max(low, -_INT64), None if high is None else min(high, _INT64 - 1)
    )
