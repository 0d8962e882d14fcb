"""Answers and references, made comparable: what a policy concludes, and what it should have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .sought import Sought

LONGEST = 80
"""Characters of a reference beyond which it is a text, not an answer."""

_NAMES = ("answer", "ground_truth", "expected_answer", "target", "solution", "value")
"""Where a reference that is an object holds the answer."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")

_MARKED = (
    Sought(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}"),
    Sought(r"<answer>(.*?)</answer>", re.S | re.I),
    Sought(r"^####[ \t]*(.+?)[ \t]*$", re.M),
    Sought(r"(?:final|the) answer(?: is)?\s*[:=]?\s*([^\n]{1,80}?)\s*\.?\s*$", re.I | re.M),
)  # fmt: skip
"""How an answer is marked as one; the strictest first."""

_LATEX = re.compile(r"\\(?:text|mathrm|mathbf|left|right|displaystyle|,|;|!)\b|[\s${}\\*`]")
_EDGES = " \n\t.,:;!?\"'"


def reference(value: Any) -> str | None:
    """The short answer that a reference holds, normalised; None: it holds none, or several."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in _NAMES if value.get(name) is not None), None)
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    if isinstance(value, str):
        value = value.rpartition("####")[2]
        if len(value) > LONGEST or "\n" in value.strip():
            return None
    return normal(str(value)) or None


def normal(text: str) -> str:
    """The same for two ways to write the same answer: case, spaces, marks, commas in numbers."""
    text = _LATEX.sub("", text.strip(_EDGES).lower()).strip(_EDGES)
    if _NUMBER.fullmatch(text):
        number = float(text.replace(",", ""))
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return text


def is_number(answer: str) -> bool:
    """Is a normalised answer a plain number?"""
    return _NUMBER.fullmatch(answer) is not None


def concluded(text: str) -> tuple[str, tuple[int, int]] | None:
    """The last answer that is marked as one, normalised, and where it stands."""
    for pattern in _MARKED:
        found = [match for match in pattern.finditer(text) if normal(match[1])]
        if found:
            return normal(found[-1][1]), found[-1].span(1)
    return None


def places(text: str, answer: str) -> Iterator[tuple[int, int]]:
    """Where a text says an answer, as a number or word of its own."""
    if _NUMBER.fullmatch(answer):
        for found in _NUMBER.finditer(text):
            if normal(found[0]) == answer:
                yield found.span()
        return
    # Normalised, it has no blanks; a text may have them anywhere: "600 cups", "(1, 2)".
    pattern = r"\s*".join(map(re.escape, "".join(answer.split())))
    for found in re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.I):
        yield found.span()


def says(text: str, answer: str) -> bool:
    """Does a text say an answer, in any way of writing it?"""
    if next(places(text, answer), None) is not None:
        return True
    return not _NUMBER.fullmatch(answer) and answer in normal(text)
